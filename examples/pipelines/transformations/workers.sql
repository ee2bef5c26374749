-- SQL and Python declare tables side by side.
CREATE MATERIALIZED VIEW workers
COMMENT 'what each worker did, and how long it took'
AS SELECT
  worker,
  worker_epoch,
  count(*) AS leases,
  count_if(outcome = 'ok') AS ok,
  percentile(handler, 0.5) AS handler_p50,
  percentile(handler, 0.99) AS handler_p99
FROM attempts
GROUP BY worker, worker_epoch
