"""The database roles of the services and what each may touch. Called by `prepare` with the owner's connection.

Tables not named here are open to all three, LangGraph's included; the owner alone creates and alters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from psycopg import Connection, errors, sql

CLOSED: Mapping[str, tuple[str, ...]] = {"api_keys": ("operator", "runtime"), "agent_graphs": ("runtime",)}
"""Table -> principals that get no access at all: graph code runs with the runtime's role."""
READ_ONLY = ("alembic_version",)
APPEND_ONLY: Mapping[str, Mapping[str, tuple[str, ...]]] = {"api_keys": {"gateway": ("revoked_at",)}}
"""Table -> principal -> the only columns it may change in a row that is there; it deletes none. `runyard keys` works
with the gateway's role: it adds keys and revokes them, and never gives a key to another user."""


@dataclass(frozen=True)
class Role:
    """A login role of one principal."""

    principal: str
    name: str
    password: str


def role_of(principal: str, url: str) -> Role:
    """The role that a principal's own database URL names. Raises ValueError; the message holds no password."""
    parts = urlsplit(url)
    if not parts.username or not parts.password:
        raise ValueError(f"the {principal}'s database URL names no user and password")
    return Role(principal, unquote(parts.username), unquote(parts.password))


def apply_roles(connection: Connection, roles: list[Role]) -> None:
    """Creates or updates the roles and sets their rights, in one transaction. Safe to run again.

    Raises ValueError for a role of another release and for an owner who may not create roles.
    """
    with connection.transaction():
        # Two Jobs at once would both find a role missing; the second waits here.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('runyard-roles'))")
        for role in roles:
            _make(connection, role)
            _grant(connection, role)


def _make(connection: Connection, role: Role) -> None:
    mark = f"Runyard, database {connection.info.dbname}"
    query = "SELECT shobj_description(oid, 'pg_authid') FROM pg_roles WHERE rolname = %s"
    known = connection.execute(query, (role.name,)).fetchone()
    # Roles are the whole server's: a second release with the same prefix would change the first one's passwords.
    if known and known[0] not in (None, mark):
        raise ValueError(f"the role {role.name} is in use ({known[0]}); set database.rolePrefix to another prefix")
    verb = sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}") if known else sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
    name = sql.Identifier(role.name)
    try:
        connection.execute(verb.format(name, sql.Literal(role.password)))
        connection.execute(sql.SQL("COMMENT ON ROLE {} IS {}").format(name, sql.Literal(mark)))
    except errors.InsufficientPrivilege as error:
        owner = connection.info.user
        raise ValueError(f"the database's owner may not create roles: ALTER ROLE {owner} CREATEROLE") from error


def _grant(connection: Connection, role: Role) -> None:
    name = sql.Identifier(role.name)
    database = sql.Identifier(connection.info.dbname)
    statements = [
        sql.SQL("GRANT CONNECT ON DATABASE {database} TO {name}"),
        sql.SQL("GRANT USAGE ON SCHEMA public TO {name}"),
        sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}"),
        sql.SQL("GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {name}"),
        sql.SQL("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {name}"),
    ]
    for statement in statements:
        connection.execute(statement.format(name=name, database=database))
    for table, closed_to in CLOSED.items():
        if role.principal in closed_to:
            connection.execute(sql.SQL("REVOKE ALL ON {} FROM {}").format(sql.Identifier(table), name))
    for table, principals in APPEND_ONLY.items():
        if columns := principals.get(role.principal):
            names = {"table": sql.Identifier(table), "name": name}
            connection.execute(sql.SQL("REVOKE UPDATE, DELETE ON {table} FROM {name}").format(**names))
            listed = sql.SQL(", ").join(map(sql.Identifier, columns))
            grant = sql.SQL("GRANT UPDATE ({columns}) ON {table} TO {name}")
            connection.execute(grant.format(columns=listed, **names))
    for table in READ_ONLY:
        revoke = sql.SQL("REVOKE INSERT, UPDATE, DELETE ON {} FROM {}")
        connection.execute(revoke.format(sql.Identifier(table), name))
