"""One small pure function for each conclusion: evidence in, findings out, none for a healthy engine."""
