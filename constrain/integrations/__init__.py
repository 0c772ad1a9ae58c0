"""The engine inside other runtimes; each module here needs the library that it is named after."""
