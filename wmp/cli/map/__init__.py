"""``wmp map``: one job for each line of the input."""
