"""Files of a prompt."""

import asyncio
from base64 import b64encode

import pytest
from client import Client
from script import Reply

IMAGE = bytes.fromhex("89504e470d0a1a0a0000000d494844520000000200000002")


def file_of(media_type: str, data: bytes, name: str = "") -> dict[str, str]:
    return {"media_type": media_type, "name": name, "data": b64encode(data).decode()}


async def test_the_model_sees_a_file_in_each_turn() -> None:
    client = Client(Reply("A photo."), Reply("Blue."))
    body = {"prompt": "What is it?", "files": [file_of("image/png", IMAGE)]}
    assert (await client.post(body, session="s")).turn == 1
    assert (await client.say("Which color?", session="s")).turn == 2
    first, second = client.model.requests
    assert first == ["user: What is it?", "user: (image)"]
    assert second == [*first, "assistant: A photo.", "user: Which color?"]


async def test_a_file_whose_content_has_another_type_is_refused() -> None:
    client = Client()
    body = {"prompt": "What is it?", "files": [file_of("image/jpeg", IMAGE, "photo.jpg")]}
    response = await client.post(body, session="s")
    assert response.status == 415
    assert response.error == "unsupported_file"
    assert "photo.jpg contains image/png, not image/jpeg." in response.text


@pytest.mark.parametrize(
    ("count", "size"), [pytest.param(3, 1, id="number"), pytest.param(1, 11, id="size")]
)
async def test_files_have_limits(count: int, size: int) -> None:
    client = Client(max_files=2, max_file_bytes=10)
    files = [file_of("text/plain", b"a" * size)] * count
    response = await client.post({"prompt": "Read.", "files": files}, session="s")
    assert response.status == 413
    assert response.error == "payload_too_large"


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        pytest.param({}, 200, id="a program"),
        pytest.param({"Origin": "http://127.0.0.1:8080"}, 200, id="the agent's page"),
        pytest.param({"Origin": "http://127.0.0.1:3000"}, 400, id="another server's page"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, 400, id="another site's page"),
    ],
)
async def test_a_form_can_have_files(origin: dict[str, str], status: int) -> None:
    client = Client(Reply("A photo."))
    body = (
        b'--edge\r\nContent-Disposition: form-data; name="prompt"\r\n\r\nWhat is it?\r\n'
        b'--edge\r\nContent-Disposition: form-data; name="files"; filename="photo.png"\r\n'
        b"Content-Type: image/png\r\n\r\n" + IMAGE + b"\r\n--edge--\r\n"
    )
    headers = {"Content-Type": "multipart/form-data; boundary=edge", **origin}
    response = await client.post(body, session="s", headers=headers)
    assert response.status == status
    expected = [["user: What is it?", "user: (image)"]]
    assert client.model.requests == (expected if status == 200 else [])


async def test_an_invalid_form_is_refused() -> None:
    body = b'--edge\r\nContent-Disposition: form-data; name="end_session"\r\n\r\nyes\r\n--edge--'
    for content, reason in ((body, 'field "end_session" is not JSON'), (body[:-2], "incomplete")):
        headers = {"Content-Type": "multipart/form-data; boundary=edge"}
        response = await Client().post(content, session="s", headers=headers)
        assert response.error == "invalid_request"
        assert reason in response.body["error"]["message"]


async def test_a_file_is_fetched_only_from_a_listed_host() -> None:
    requests = list[bytes]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readline())
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(IMAGE)}\r\n\r\n"
        writer.write(head.encode() + IMAGE)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        body = {"prompt": "What is it?", "files": [{"url": f"http://127.0.0.1:{port}/a.png"}]}
        response = await Client().post(body, session="s")
        assert response.status == 400
        assert "files[0].url: set FILE_HOSTS to allow this host." in response.text
        assert requests == []
        client = Client(Reply("A photo."), file_hosts=(f"127.0.0.1:{port}",))
        assert (await client.post(body, session="s")).turn == 1
        assert client.model.requests == [["user: What is it?", "user: (image)"]]
        assert requests == [b"GET /a.png HTTP/1.1\r\n"]
