-- version 5, oldest compatible version 1
--
-- Which process serves. Who does holds an advisory lock on a connection of its own (ledger/leadership.ts); here
-- stands how often a process has asked for it, so that the one before sees that it is to hand over.
CREATE TABLE bridge_leadership (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  asked bigint NOT NULL DEFAULT 0
);
INSERT INTO bridge_leadership DEFAULT VALUES;

-- Whether `due_at` is the end of somebody's lease: a back-off is not cut short when a lease is freed.
ALTER TABLE bridge_ghost_rooms ADD COLUMN is_held boolean NOT NULL DEFAULT false;
ALTER TABLE bridge_notices ADD COLUMN is_held boolean NOT NULL DEFAULT false;
