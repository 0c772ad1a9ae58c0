"""A server with the API of OpenAI, whose answers keep to the constraints of the request."""

from constrain.serve.app import create_app
from constrain.serve.errors import APIError
from constrain.serve.models import Models, ServedModel
from constrain.serve.settings import ServerSettings

__all__ = ["APIError", "Models", "ServedModel", "ServerSettings", "create_app"]
