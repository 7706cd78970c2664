-- version 7, oldest compatible version 1
--
-- Which asking for the place led to a bridge that goes on serving, and when the last one was made: a release that
-- asks and dies, again and again, lets the one before it serve. A program that writes neither goes on as it did;
-- what it asks counts as in vain until one that knows of this goes on serving.
ALTER TABLE bridge_leadership ADD COLUMN stood bigint NOT NULL DEFAULT 0;
ALTER TABLE bridge_leadership ADD COLUMN asked_at timestamptz;
UPDATE bridge_leadership SET stood = asked;
