"""What a person should be told of a night: coefficients that moved, errors that grew, coverage and verdicts that changed."""
