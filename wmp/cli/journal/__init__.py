"""``wmp journal``: print, follow and count the lines of journals."""
