"""How the embedded model was made: prompts -> corpus -> clean -> train -> card."""
