"""Cases of people who do this job, on every store: the same bodies, values and kills, whoever keeps the records."""
