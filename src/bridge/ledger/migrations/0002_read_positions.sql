-- version 2, oldest compatible version 1
--
-- How far each ghost has read back what the homeserver's transactions may have lost (decision 0009).
-- A position moves only after everything before it is durable; without one, all there is is read.

ALTER TABLE bridge_ghosts ADD COLUMN to_device_since text;
ALTER TABLE bridge_ghosts ADD COLUMN rooms_since text;
