"""``wmp worker``: serve functions, tasks or a command."""
