"""Agents as peers: each holds its own rows, talks to its neighbours only, and survives a crash.

gRPC would also speak TLS 1.2 and has no setting against it. All keys here are elliptic, so where
the only TLS 1.2 suite allowed is one for RSA keys, TLS 1.3 (whose suites are fixed) is what is
left. gRPC reads this once, when it is imported.
"""

import os
import sys

_NAME, _SUITE = "GRPC_SSL_CIPHER_SUITES", "ECDHE-RSA-AES128-GCM-SHA256"
strict = "grpc" not in sys.modules or os.environ.get(_NAME) == _SUITE
os.environ[_NAME] = _SUITE
