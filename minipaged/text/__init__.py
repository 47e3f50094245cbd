"""Text: from token ids back to characters, one token at a time, and where to stop."""
