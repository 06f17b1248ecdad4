"""The commands of `prep`: options -> one call -> a report."""
