"""A TCP proxy between a client and its server that cuts, delays, and loses requests or replies when it is told to."""

from durable_conformance.servers._proxy import Fault, Proxy

__all__ = ["Fault", "Proxy"]
