"""Worker-Manager Protocol: distribute work between many managers and many workers."""
