"""The model that comes with the package: a folder in Hugging Face's form, and how it was made.

prompts -> corpus -> clean -> train -> card
"""
