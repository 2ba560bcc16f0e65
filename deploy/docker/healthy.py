"""Whether the program in this container answers: `healthy.py PORT PATH`, for HEALTHCHECK.

The image has neither curl nor wget. With TLS the certificate is not for 127.0.0.1, so it is not
verified: the check is for an answer, not for an identity.
"""
# ruff: noqa: INP001 - a script of the images, in no package

import http.client
import ssl
import sys

SECONDS = 4


def answers(port: int, path: str) -> bool:
    """Whether this port answers with success, over TLS or without."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for connection in (
        http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS),
        http.client.HTTPSConnection("127.0.0.1", port, timeout=SECONDS, context=context),
    ):
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            continue
        finally:
            connection.close()
    return False


if __name__ == "__main__":
    sys.exit(not answers(int(sys.argv[1]), sys.argv[2]))
