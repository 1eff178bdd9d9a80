"""Runs the migrations on the connection that runyard_store.migrate hands over in the configuration."""

from alembic import context

from runyard_store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
