CREATE SCHEMA wmp_old;
CREATE TABLE wmp_old.failures (
    id bigint NOT NULL,
    place bigint NOT NULL,
    attempt bigint NOT NULL,
    worker bytea NOT NULL,
    at bigint NOT NULL,
    error bytea NOT NULL
);
CREATE TABLE wmp_old.instances (
    instance bigint NOT NULL,
    identity bytea NOT NULL,
    epoch bigint NOT NULL,
    label bytea NOT NULL,
    begun bigint NOT NULL,
    valid_until bigint NOT NULL,
    ended bigint,
    batch bigint NOT NULL,
    bytes bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE wmp_old.jobs (
    id bigint NOT NULL,
    state integer NOT NULL,
    kind bigint NOT NULL,
    priority bigint NOT NULL,
    due bigint NOT NULL,
    attempt bigint NOT NULL,
    lost bigint NOT NULL,
    failed bigint NOT NULL,
    terms bigint NOT NULL,
    instance bigint,
    submitter bigint,
    deadline bigint,
    expires bigint,
    created bigint NOT NULL,
    ended bigint,
    purge bigint,
    key bytea,
    payload bytea NOT NULL,
    over boolean DEFAULT false NOT NULL,
    role bytea,
    worker bytea,
    begun bigint,
    ran bigint DEFAULT 0 NOT NULL,
    fraction double precision,
    note bytea
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='5000');
ALTER TABLE ONLY wmp_old.jobs ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE wmp_old.kinds (
    kind bigint NOT NULL,
    digest bytea NOT NULL,
    role bytea NOT NULL,
    needs text NOT NULL,
    codec bytea NOT NULL,
    checksum boolean NOT NULL
);
ALTER TABLE wmp_old.kinds ALTER COLUMN kind ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME wmp_old.kinds_kind_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE wmp_old.meta (
    one integer NOT NULL,
    version bigint NOT NULL,
    identity bytea NOT NULL,
    generation bigint NOT NULL,
    home text NOT NULL,
    next_id bigint NOT NULL,
    next_instance bigint NOT NULL,
    last_epoch bigint NOT NULL,
    CONSTRAINT meta_one_check CHECK ((one = 1))
);
CREATE TABLE wmp_old.parents (
    id bigint NOT NULL,
    place bigint NOT NULL,
    parent bigint NOT NULL
);
CREATE TABLE wmp_old.records (
    sort text NOT NULL,
    id bigint NOT NULL,
    open boolean NOT NULL,
    body text NOT NULL
);
CREATE TABLE wmp_old.results (
    id bigint NOT NULL,
    attempt bigint NOT NULL,
    payload bytea NOT NULL
);
ALTER TABLE ONLY wmp_old.results ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE wmp_old.terms (
    terms bigint NOT NULL,
    digest bytea NOT NULL,
    spec text NOT NULL,
    keep bigint NOT NULL,
    keep_dead bigint NOT NULL
);
ALTER TABLE wmp_old.terms ALTER COLUMN terms ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME wmp_old.terms_terms_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE wmp_old.waits (
    id bigint NOT NULL,
    splice bigint,
    delay bigint NOT NULL,
    timeout bigint,
    expires bigint
);
CREATE TABLE wmp_old.watchers (
    id bigint NOT NULL,
    instance bigint NOT NULL
);
INSERT INTO wmp_old.failures VALUES (4, 1, 1, '\x77', 1795859660770, '\x56616c75654572726f723a206e6f');
INSERT INTO wmp_old.instances VALUES (1, '\x6d', 1795859660617, '\x74657374', 1795859660617, 1795859675806, NULL, 9, 1034);
INSERT INTO wmp_old.jobs VALUES (1, 3, 1, 0, 1795859660622, 1, 0, 0, 1, NULL, NULL, NULL, NULL, 1795859660622, 1795859660697, 1795863260697, '\x6b657074', '\x31', false, '\x61', NULL, NULL, 0, NULL, NULL);
INSERT INTO wmp_old.jobs VALUES (2, 0, 2, 0, 1795859660714, 0, 0, 0, 1, NULL, 1, NULL, NULL, 1795859660714, NULL, NULL, '\x6b', '\x32', false, '\x62', NULL, NULL, 0, NULL, NULL);
INSERT INTO wmp_old.jobs VALUES (4, 1, 1, 0, 1795859660726, 2, 0, 1, 1, 1, 1, NULL, NULL, 1795859660726, NULL, NULL, NULL, '\x34', false, NULL, NULL, NULL, 0, NULL, NULL);
INSERT INTO wmp_old.jobs VALUES (3, -2, 1, 0, 1795859660806, 0, 0, 0, 1, NULL, 1, NULL, NULL, 1795859660806, NULL, NULL, NULL, '\x33', false, NULL, NULL, NULL, 0, NULL, NULL);
INSERT INTO wmp_old.kinds OVERRIDING SYSTEM VALUE VALUES (1, '\xaec88526160a4a2dce9c456175c34bce6cad32aebab779b46b288b90c15df8f1', '\x61', '[["slots",1]]', '\x', false);
INSERT INTO wmp_old.kinds OVERRIDING SYSTEM VALUE VALUES (2, '\x5d176bd0d59870684f1ffe29cb52d52d0b874773c4a22b00c75789013f8dba52', '\x62', '[["slots",1]]', '\x', false);
INSERT INTO wmp_old.meta VALUES (1, 2001, '\x4c4f19a43ae47ca5c3ddb3b2a15723bb', 1795859660525, '7713158495471521569/5/16420', 65537, 2, 1795859660617);
INSERT INTO wmp_old.parents VALUES (3, 0, 1);
INSERT INTO wmp_old.parents VALUES (3, 1, 4);
INSERT INTO wmp_old.results VALUES (1, 1, '\x726573756c74');
INSERT INTO wmp_old.terms OVERRIDING SYSTEM VALUE VALUES (1, '\x175ec2a1d51e3a9171da98a722ae0e6a9323991b2f20ebd4932238a438e77358', '{"retries":3}', 3600000, 604800000);
INSERT INTO wmp_old.waits VALUES (3, 0, 0, NULL, NULL);
SELECT pg_catalog.setval('wmp_old.kinds_kind_seq', 2, true);
SELECT pg_catalog.setval('wmp_old.terms_terms_seq', 1, true);
ALTER TABLE ONLY wmp_old.failures
    ADD CONSTRAINT failures_pkey PRIMARY KEY (id, place);
ALTER TABLE ONLY wmp_old.instances
    ADD CONSTRAINT instances_pkey PRIMARY KEY (instance);
ALTER TABLE ONLY wmp_old.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY wmp_old.kinds
    ADD CONSTRAINT kinds_digest_key UNIQUE (digest);
ALTER TABLE ONLY wmp_old.kinds
    ADD CONSTRAINT kinds_pkey PRIMARY KEY (kind);
ALTER TABLE ONLY wmp_old.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (one);
ALTER TABLE ONLY wmp_old.parents
    ADD CONSTRAINT parents_pkey PRIMARY KEY (id, place);
ALTER TABLE ONLY wmp_old.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (sort, id);
ALTER TABLE ONLY wmp_old.results
    ADD CONSTRAINT results_pkey PRIMARY KEY (id);
ALTER TABLE ONLY wmp_old.terms
    ADD CONSTRAINT terms_digest_key UNIQUE (digest);
ALTER TABLE ONLY wmp_old.terms
    ADD CONSTRAINT terms_pkey PRIMARY KEY (terms);
ALTER TABLE ONLY wmp_old.waits
    ADD CONSTRAINT waits_pkey PRIMARY KEY (id);
ALTER TABLE ONLY wmp_old.watchers
    ADD CONSTRAINT watchers_pkey PRIMARY KEY (id, instance);
CREATE INDEX jobs_deadline ON wmp_old.jobs USING btree (deadline, id) WHERE ((state < 3) AND (deadline IS NOT NULL));
CREATE INDEX jobs_expires ON wmp_old.jobs USING btree (expires, id) WHERE ((state = 0) AND (expires IS NOT NULL));
CREATE INDEX jobs_held ON wmp_old.jobs USING btree (instance, state, id) WHERE (state = ANY (ARRAY[1, 2]));
CREATE INDEX jobs_kept ON wmp_old.jobs USING btree (sha256(key), sha256(role), ended, id) WHERE ((state >= 2) AND (key IS NOT NULL));
CREATE UNIQUE INDEX jobs_key ON wmp_old.jobs USING btree (sha256(key), sha256(role)) WHERE ((state < 2) AND (key IS NOT NULL));
CREATE INDEX jobs_news ON wmp_old.jobs USING btree (submitter, id) WHERE ((state >= 3) AND (submitter IS NOT NULL));
CREATE INDEX jobs_purge ON wmp_old.jobs USING btree (purge, id) WHERE (state >= 3);
CREATE INDEX jobs_ready ON wmp_old.jobs USING btree (kind, priority DESC, due, id) WHERE (state = 0);
CREATE INDEX parents_parent ON wmp_old.parents USING btree (parent, id);
CREATE INDEX records_open ON wmp_old.records USING btree (sort, id) WHERE open;
