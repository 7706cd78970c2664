-- version 4, oldest compatible version 1
--
-- The ghosts' cryptographic machines. Invariants:
--   * a store's records are written under its fence: whoever opens it raises the fence, and shuts out by
--     that whoever had it open; a writer locks the store's row FOR SHARE in the statement that writes;
--   * records are encrypted by the machine with the store's own key, and that key is sealed by a key that
--     is not in the database;
--   * a store without identity keys was never finished: nobody has heard of its device, and `create`
--     begins anew. Once there, the identity never changes.

CREATE TABLE bridge_crypto_stores (
  ghost_mxid text PRIMARY KEY,
  device_id text NOT NULL,
  sealed_key bytea NOT NULL,
  fence bigint NOT NULL DEFAULT 1,
  -- Version, object stores and indices of the machine's databases, to rebuild them before it is opened.
  databases jsonb NOT NULL DEFAULT '[]',
  curve25519 text,
  ed25519 text,
  created_at timestamptz NOT NULL,
  -- Raised with each start and each upload of keys, and written to the homeserver as well: there it is
  -- higher than here when this database was put back from a backup.
  epoch bigint NOT NULL DEFAULT 0,
  -- When the homeserver first had the device's keys.
  published_at timestamptz,
  CHECK ((curve25519 IS NULL) = (ed25519 IS NULL)),
  CHECK (published_at IS NULL OR curve25519 IS NOT NULL)
);

-- No foreign key: each write locks its store's row in the same statement, which says more and costs less.
CREATE TABLE bridge_crypto_records (
  ghost_mxid text NOT NULL,
  -- Database and object store of the machine.
  object_store text COLLATE "C" NOT NULL,
  record_key text COLLATE "C" NOT NULL,
  value bytea NOT NULL,
  PRIMARY KEY (ghost_mxid, object_store, record_key)
);
-- Encrypted: there is nothing to compress.
ALTER TABLE bridge_crypto_records ALTER COLUMN value SET STORAGE EXTERNAL;

-- Why a ghost's device takes no part any more, until an operator resets it. It stands with the ghost, for
-- a store that was lost has no row.
ALTER TABLE bridge_ghosts ADD COLUMN device_stopped_reason text CHECK (device_stopped_reason IN (
  'store_lost', 'store_foreign', 'store_behind', 'device_deleted'));
ALTER TABLE bridge_ghosts ADD COLUMN device_stopped_at timestamptz;
ALTER TABLE bridge_ghosts ADD CHECK ((device_stopped_reason IS NULL) = (device_stopped_at IS NULL));
