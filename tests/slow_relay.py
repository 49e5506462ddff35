#!/usr/bin/env python3
"""A relay that is slow: what comes in goes out so many milliseconds later.

    tests/slow_relay.py LISTEN-HOST LISTEN-PORT HOST PORT MILLISECONDS

For networks that cannot be made slow (no netem in the kernel). Connections are counted in no way; it runs until it is killed.
"""
import asyncio
import sys


async def pass_on(reader, writer, seconds):
    """Each part goes out `seconds` after it came in; parts do not wait for each other."""
    loop = asyncio.get_running_loop()
    queue = asyncio.Queue(1024)

    async def send():
        while True:
            due, part = await queue.get()
            await asyncio.sleep(max(0, due - loop.time()))
            if not part:
                break
            writer.write(part)
            await writer.drain()
        writer.close()

    sender = asyncio.ensure_future(send())
    try:
        while True:
            part = await reader.read(65536)
            await queue.put((loop.time() + seconds, part))
            if not part:
                break
        await sender
    except (ConnectionError, asyncio.CancelledError):
        sender.cancel()
        writer.close()


async def main():
    host, port, to_host, to_port, milliseconds = sys.argv[1:6]
    seconds = float(milliseconds) / 1e3

    async def accept(reader, writer):
        try:
            to_reader, to_writer = await asyncio.open_connection(to_host, int(to_port))
        except ConnectionError:
            writer.close()
            return
        await asyncio.gather(pass_on(reader, to_writer, seconds), pass_on(to_reader, writer, seconds))

    server = await asyncio.start_server(accept, host, int(port))
    async with server:
        await server.serve_forever()


asyncio.run(main())
