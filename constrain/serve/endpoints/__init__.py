"""The endpoints of the OpenAI API."""
