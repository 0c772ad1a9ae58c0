"""Requests of the OpenAI API, with the fields by which other servers take constraints."""
