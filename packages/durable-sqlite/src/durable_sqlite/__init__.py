"""Durable workflows on SQLite."""
