-- A table declared in SQL, beside those declared in Python.
CREATE MATERIALIZED VIEW workers
COMMENT 'leases of each worker, and durations of its handlers'
AS SELECT
  worker,
  worker_epoch,
  count(*) AS leases,
  count_if(outcome = 'ok') AS ok,
  percentile(handler, 0.5) AS handler_p50,
  percentile(handler, 0.99) AS handler_p99
FROM attempts
GROUP BY worker, worker_epoch
