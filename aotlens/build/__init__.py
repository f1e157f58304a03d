"""From the records of the stages to the report's records: the only part of the report that knows torch."""
