"""Writers that are killed, frozen and cut off from the catalog."""
