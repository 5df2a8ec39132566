"""A shop on durable workflows: orders that are paid, approved, shipped or undone, while its workers are killed."""
