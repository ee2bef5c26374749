"""What the stores in SQL databases share; each store adds its statements."""
