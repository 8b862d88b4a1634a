"""The metadata database: the only room with SQLAlchemy."""
