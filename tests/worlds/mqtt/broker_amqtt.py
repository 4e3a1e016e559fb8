"""amqtt in an interpreter of its own: python broker_amqtt.py PORT CA CERT KEY USERNAME PASSWORD
FOLDER. Says "running" on stderr.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Any


async def main(
    port: str, ca: str, certificate: str, key: str, username: str, password: str, folder: str
) -> None:
    from amqtt.broker import Broker

    logging.disable(logging.CRITICAL)
    listener: dict[str, Any] = {"type": "tcp", "bind": f"127.0.0.1:{port}"}
    if certificate:
        listener |= {"ssl": True, "cafile": ca, "certfile": certificate, "keyfile": key}
    plugins: dict[str, Any] = {
        "amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": not username}
    }
    if username:
        from pwdlib import PasswordHash

        passwords = Path(folder) / "passwords"
        passwords.write_text(f"{username}:{PasswordHash.recommended().hash(password)}\n")
        plugins["amqtt.plugins.authentication.FileAuthPlugin"] = {"password_file": str(passwords)}
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    broker = Broker({"listeners": {"default": listener}, "plugins": plugins})
    await broker.start()
    sys.stderr.write("running\n")
    sys.stderr.flush()
    await stop.wait()
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
