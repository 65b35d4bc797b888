"""``kerneljudge keys``: keys of the API. They are made and revoked on the server, in the database of its settings.

So an operator can make the first key, and is not locked out after losing all keys.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from kerneljudge.cli import render
from kerneljudge.cli.options import AsJson
from kerneljudge.cli.output import BadUsage, as_error, emit, say, turned_into_exits
from kerneljudge.cli.server_part import need_server

__all__ = ["keys_app"]

_SCOPES = ("read", "submit", "references", "admin")

keys_app = typer.Typer(
    no_args_is_help=True,
    help="Keys of the API, in the database of this server's settings.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@keys_app.command("create")
def create_key(
    client: Annotated[str, typer.Argument(help="The client's name. Submissions with the key belong to it.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="read; submit, which includes it; admin, which includes both and everybody's private things. May be "
            "repeated. Default: submit."
        ),
    ] = None,
    own_only: Annotated[
        bool, typer.Option("--own-only", help="It sees its client's submissions alone, not even others' public ones.")
    ] = False,
    expires_in_days: Annotated[int | None, typer.Option(min=1, help="Default: never.")] = None,
    requests_per_min: Annotated[int | None, typer.Option(min=0, help="0: no limit. Default: that of the API.")] = None,
    submissions_per_day: Annotated[
        int | None, typer.Option(min=0, help="0: no limit. Default: that of the API.")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Make a key and print it. It is shown this once, because only a hash of it is stored."""
    with turned_into_exits(as_error(json_)):
        wanted = scope or ["submit"]
        for name in wanted:
            if name not in _SCOPES:
                raise BadUsage(f"a scope is {', '.join(_SCOPES)}, not {name!r}")
        if not client.strip() or len(client) > 200:
            raise BadUsage("a client is named by 1 to 200 characters")
        if own_only and "admin" in wanted:
            raise BadUsage("a key with the scope admin sees everything, so it cannot be --own-only")
        need_server("kerneljudge keys")
        from kerneljudge_server import keys

        record, token = keys.create(
            client,
            wanted,
            own_only=own_only,
            expires_in=None if expires_in_days is None else timedelta(days=expires_in_days),
            requests_per_min=requests_per_min,
            submissions_per_day=submissions_per_day,
        )
        if json_:
            emit({**record, "key": token})
        else:
            typer.echo(token)
            say(f"{record['id']} for {client}: {', '.join(record['scopes'])}")
            say("it is shown this once; programs take it from KERNELJUDGE_API_KEY")
            if own_only:
                say("set KERNELJUDGE_PUBLIC_READ=false, or its holder reads everything public without a key")


@keys_app.command("list")
def list_keys(json_: AsJson = False) -> None:
    """List all keys, the newest first, without their texts."""
    with turned_into_exits(as_error(json_)):
        need_server("kerneljudge keys")
        from kerneljudge_server import keys

        records = keys.listed()
        if json_:
            emit({"items": records})
        else:
            for record in records:
                state = "revoked" if record["revoked"] else f"expires {record['expires']}" if record["expires"] else ""
                used = f"last used {record['last_used']}" if record["last_used"] else "never used"
                scopes = ",".join(record["scopes"])
                own = "own only" if record["own_only"] else ""
                shown = (record["id"], record["prefix"] + "…", record["client"], scopes, own, used, state)
                render.write("  ".join(part for part in shown if part))


@keys_app.command("revoke")
def revoke_key(
    key: Annotated[str, typer.Argument(help="Its id, or how it begins: see kerneljudge keys list.")],
    json_: AsJson = False,
) -> None:
    """Revoke a key. It is refused from the next request on."""
    with turned_into_exits(as_error(json_)):
        need_server("kerneljudge keys")
        from kerneljudge_server import keys

        record = keys.revoke(key)
        if json_:
            emit(record)
        else:
            say(f"revoked: {record['id']} of {record['client']}")
