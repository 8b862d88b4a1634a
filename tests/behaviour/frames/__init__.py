"""Every kind of frame that users hand in."""
