"""`gradleak new`: a submission to begin with, which works and keeps every promise."""
