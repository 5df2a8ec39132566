"""Every key of the store: made here and nowhere else, each with the tag that says where on a cluster it lives."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from redis.crc import key_slot

from durable_core.keys import check_name, check_workflow

MAX_PARTITIONS = 1_024
_ESCAPED = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})


def check_namespace(namespace: str) -> None:
    """Refuse a namespace that could not be a tag."""
    check_name(namespace, "namespace")
    if "{" in namespace or "}" in namespace:
        raise ValueError(f"namespace {namespace!r} must not contain braces: it is put between them")


def check_partitions(partitions: int) -> None:
    """Refuse a number of partitions that is none."""
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise ValueError(f"partitions must be between 1 and {MAX_PARTITIONS}, and is {partitions}")


@dataclass(frozen=True, slots=True)
class Owned:
    """The keys of one workflow. `index` and `finished` are there where workflows share a partition."""

    workflow: bytes
    records: bytes
    claim: bytes
    nonces: bytes
    index: bytes | None = None
    finished: bytes | None = None

    def indexed(self, *keys: bytes, outcome: bool = False) -> tuple[bytes, ...]:
        """Give some keys, and the index where there is one; for an outcome also what keeps the finished."""
        if self.index is None or self.finished is None:
            return keys
        return (*keys, self.index, self.finished) if outcome else (*keys, self.index)


@dataclass(frozen=True, slots=True)
class Queue:
    """The keys of one queue in one partition, in the order in which scripts take them."""

    base: bytes
    keys: tuple[bytes, ...]
    index: bytes
    records: bytes
    claims: bytes

    def owned(self, workflows: Sequence[bytes]) -> list[bytes]:
        """Give records and claim of each of these workflows."""
        return [key for name in workflows for key in (self.records + name, self.claims + name)]

    @property
    def states(self) -> bytes:
        """Where the states of deliveries are."""
        return self.keys[1]

    @property
    def bell(self) -> bytes:
        """What an idle taker listens to."""
        return self.keys[3]


@dataclass(frozen=True, slots=True)
class Tagged:
    """The layout of a bare checkpointer: each workflow has a tag of its own, so that they spread over a cluster one by one."""

    namespace: str

    def of(self, workflow: str) -> Owned:
        """Give the keys of a workflow."""
        base = f"{{{self._tag(workflow)}}}".encode()
        return Owned(workflow.encode(), base + b":r", base + b":c", base + b":a")

    def prefix(self, workflow: str) -> str:
        """Give what the application's keys begin with that share the workflow's slot."""
        return f"{{{self._tag(workflow)}}}/"

    def _tag(self, workflow: str) -> str:
        # No id ends the tag early: its braces are escaped. [CKP-LOAD-ISOLATED]
        return f"{self.namespace}:{workflow.translate(_ESCAPED)}"


@dataclass(frozen=True, slots=True)
class Partitioned:
    """The layout of a `RedisDurable`: a partition has one tag for its queues, its workflows and the application's own keys."""

    namespace: str
    partitions: int

    def place(self, workflow: str) -> int:
        """Give the partition of a workflow."""
        return zlib.crc32(workflow.encode()) % self.partitions if self.partitions > 1 else 0

    def tag(self, place: int) -> str:
        """Give the tag of a partition, braces included."""
        return f"{{{self.namespace}}}" if self.partitions == 1 else f"{{{self.namespace}:{place}}}"

    def of(self, workflow: str) -> Owned:
        """Give the keys of a workflow."""
        base = self.tag(self.place(workflow)).encode()
        name = workflow.encode()
        return Owned(name, base + b":r:" + name, base + b":c:" + name, base + b":a:" + name, base + b":i", base + b":f")

    def prefix(self, workflow: str) -> str:
        """Give what the application's keys begin with that share the workflow's slot."""
        return f"{self.tag(self.place(workflow))}/"

    def written(self) -> list[tuple[bytes, bytes]]:
        """Give the keys under which the namespace, and each partition, say how they were laid out and what queues there are."""
        tags = [f"{{{self.namespace}}}", *(self.tag(place) for place in range(self.partitions))]
        return [(f"{tag}:layout".encode(), f"{tag}:queues".encode()) for tag in dict.fromkeys(tags)]

    def queues(self, place: int) -> bytes:
        """Give the key under which a partition has the names of its queues."""
        return f"{self.tag(place)}:queues".encode()

    def finished(self, place: int) -> bytes:
        """Give the key under which a partition has what finished, and when."""
        return f"{self.tag(place)}:f".encode()

    def queue(self, name: str, place: int, parts: str = "zdxn") -> Queue:
        """Give the keys of a queue in a partition."""
        tag = self.tag(place).encode()
        base = tag + b":q:" + name.encode()
        return Queue(base, tuple(base + b":" + part.encode() for part in parts), tag + b":i", tag + b":r:", tag + b":c:")


Layout = Tagged | Partitioned


def check_effect_keys(layout: Layout, workflow: str, keys: Sequence[bytes]) -> None:
    """Refuse an effect's key in another slot than the workflow's, also on a single node, and one that is the store's own."""
    check_workflow(workflow)
    ours = layout.of(workflow).records
    slot, own = key_slot(ours), ours[: ours.index(b"}") + 1]
    for key in keys:
        if key_slot(key) != slot:
            raise ValueError(
                f"the effect's key {key.decode(errors='replace')!r} is in slot {key_slot(key)}, and workflow {workflow!r} is in "
                f"slot {slot}: one script cannot reach both on a cluster. Begin the key with {layout.prefix(workflow)!r}, as "
                "hash_key does"
            )
        if key.startswith(own + b":"):
            raise ValueError(f"the effect's key {key.decode(errors='replace')!r} belongs to the store: see hash_key")
