-- version 6, oldest compatible version 1
--
-- When a ghost's last invitation was made, as its event says (origin_server_ts): a leave that is older, and was
-- held up, does not withdraw it. NULL: not known.
ALTER TABLE bridge_ghost_rooms ADD COLUMN invited_at bigint;
