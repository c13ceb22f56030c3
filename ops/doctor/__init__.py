"""Finds what would go wrong on this host and this Redis, and says what to do about it."""
