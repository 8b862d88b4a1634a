"""Random histories of two implementations on one lake."""
