"""Durable workflows on Postgres; not released yet."""
