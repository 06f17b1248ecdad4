"""Tables: files and DataFrames -> typed columns -> fitted codes -> packed records."""
