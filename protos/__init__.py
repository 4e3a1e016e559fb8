"""The wire: .proto files and the code generated from them (``python tools/protos.py``)."""
