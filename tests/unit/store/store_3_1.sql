BEGIN TRANSACTION;
CREATE TABLE bodies(id INTEGER PRIMARY KEY, payload BLOB NOT NULL);
CREATE TABLE failures(
        id INTEGER NOT NULL, place INTEGER NOT NULL, attempt INTEGER NOT NULL,
        worker TEXT NOT NULL, at INTEGER NOT NULL, error TEXT NOT NULL,
        PRIMARY KEY(id, place)) WITHOUT ROWID;
CREATE TABLE instances(
        instance INTEGER PRIMARY KEY, identity BLOB NOT NULL, epoch INTEGER NOT NULL,
        label TEXT NOT NULL, valid_until INTEGER NOT NULL, ended INTEGER,
        batch INTEGER NOT NULL);
INSERT INTO "instances" VALUES(1,X'67162C590B7DA95203D823846A1F0784',1795851145048,'vm:31862',1795851160055,1795851145057,3);
CREATE TABLE jobs(
        id INTEGER PRIMARY KEY, state INTEGER NOT NULL, kind INTEGER NOT NULL,
        priority INTEGER NOT NULL, due INTEGER NOT NULL, attempt INTEGER NOT NULL,
        lost INTEGER NOT NULL, failed INTEGER NOT NULL, terms INTEGER NOT NULL,
        instance INTEGER, submitter INTEGER, deadline INTEGER, expires INTEGER,
        created INTEGER NOT NULL, ended INTEGER, purge INTEGER, key TEXT, payload BLOB,
        over INTEGER NOT NULL DEFAULT 0, role TEXT, worker TEXT, begun INTEGER, ran INTEGER NOT NULL DEFAULT 0, fraction REAL, note TEXT);
INSERT INTO "jobs" VALUES(1,0,1,0,1795851145054,4,1,0,1,NULL,1,NULL,NULL,1795851145054,NULL,NULL,'k',X'6669727374',1,'a',NULL,NULL,0,NULL,NULL);
INSERT INTO "jobs" VALUES(2,0,2,0,1795851145055,0,0,0,1,NULL,1,NULL,NULL,1795851145055,NULL,NULL,NULL,X'7365636F6E64',0,NULL,NULL,NULL,0,NULL,NULL);
CREATE TABLE kinds(
        kind INTEGER PRIMARY KEY, role TEXT NOT NULL, needs TEXT NOT NULL, codec TEXT NOT NULL,
        checksum INTEGER NOT NULL, UNIQUE(role, needs, codec, checksum));
INSERT INTO "kinds" VALUES(1,'a','[["slots",1]]','',0);
INSERT INTO "kinds" VALUES(2,'b','[["slots",1]]','',0);
CREATE TABLE meta(
        one INTEGER PRIMARY KEY CHECK (one = 1), identity BLOB NOT NULL,
        generation INTEGER NOT NULL, copied INTEGER NOT NULL, inode INTEGER NOT NULL,
        next_id INTEGER NOT NULL, next_instance INTEGER NOT NULL, last_epoch INTEGER NOT NULL);
INSERT INTO "meta" VALUES(1,X'72E2A8A1E7AEE782D8698E9E3A7ADCB4',1795851145043,0,2170985,262145,2,1795851145048);
CREATE TABLE parents(
        id INTEGER NOT NULL, place INTEGER NOT NULL, parent INTEGER NOT NULL,
        PRIMARY KEY(id, place)) WITHOUT ROWID;
CREATE TABLE results(id INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, payload BLOB NOT NULL);
CREATE TABLE terms(
        terms INTEGER PRIMARY KEY, spec TEXT NOT NULL, keep INTEGER NOT NULL,
        keep_dead INTEGER NOT NULL, UNIQUE(spec, keep, keep_dead));
INSERT INTO "terms" VALUES(1,'{"retries":3}',3600000,604800000);
CREATE TABLE waits(
        id INTEGER PRIMARY KEY, splice INTEGER, delay INTEGER NOT NULL, timeout INTEGER,
        expires INTEGER);
CREATE TABLE watchers(
        id INTEGER NOT NULL, instance INTEGER NOT NULL, PRIMARY KEY(id, instance)) WITHOUT ROWID;
CREATE INDEX jobs_ready ON jobs(kind, priority DESC, due, id) WHERE state = 0;
CREATE INDEX jobs_held ON jobs(instance, state) WHERE state IN (1, 2);
CREATE INDEX jobs_news ON jobs(submitter)
        WHERE state >= 3 AND submitter IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs(deadline) WHERE state < 3 AND deadline IS NOT NULL;
CREATE INDEX jobs_expires ON jobs(expires) WHERE state = 0 AND expires IS NOT NULL;
CREATE INDEX jobs_purge ON jobs(purge) WHERE state >= 3;
CREATE UNIQUE INDEX jobs_key ON jobs(key, role) WHERE state < 2 AND key IS NOT NULL;
CREATE INDEX jobs_kept ON jobs(key, role, ended, id) WHERE state >= 2 AND key IS NOT NULL;
CREATE INDEX parents_parent ON parents(parent, id);
COMMIT;
PRAGMA application_id = 1464684627;
PRAGMA user_version = 3001;
