-- The cost of each layer of a run against the one it stands on, by each figure: the logarithm of the ratio of times for
-- the same work (above 0 is a cost), as `vmtax show` has it without its interval: the Hodges-Lehmann estimate over rounds.
WITH side AS (  -- the first configuration of each layer
    SELECT DISTINCT ON (experiment, layer) experiment, layer, name
    FROM treatment WHERE repeats IS NULL AND side = ''
    ORDER BY experiment, layer, ordinal
), number AS (  -- the median of each boot
    SELECT side.experiment, side.layer, measurement.metric, trial.round,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY measurement.value) AS value
    FROM side
    JOIN experiment ON experiment.id = side.experiment
    JOIN trial ON trial.experiment = side.experiment AND trial.treatment = side.name AND trial.status = 'ok'
    JOIN measurement ON measurement.trial = trial.id AND measurement.value > 0
    JOIN metric ON metric.id = measurement.metric
    WHERE experiment.state = 'complete' AND {chosen}
        AND NOT EXISTS (SELECT 1 FROM boot WHERE boot.experiment = experiment.id AND boot.emulated)
    GROUP BY side.experiment, side.layer, measurement.metric, trial.round
), ratio AS (
    SELECT upper.experiment, upper.layer, lower.layer AS baseline, upper.metric, upper.round,
        ln(upper.value / lower.value) AS log
    FROM number upper
    JOIN number lower USING (experiment, metric, round)
    WHERE (lower.layer, upper.layer) IN ({contrasts})
), cost AS (
    SELECT one.experiment, one.layer, one.baseline, one.metric,
        count(*) FILTER (WHERE one.round = other.round) AS rounds,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY (one.log + other.log) / 2) AS log
    FROM ratio one
    JOIN ratio other USING (experiment, layer, baseline, metric)
    WHERE one.round <= other.round
    GROUP BY one.experiment, one.layer, one.baseline, one.metric
)
SELECT to_timestamp(experiment.created) AS time, experiment.id AS run, experiment.label AS fleet,
    coalesce(CASE experiment.host WHEN 'local' THEN facts.facts ->> 'hostname' END, experiment.host) AS host,
    metric.name AS figure, cost.layer, cost.baseline, cost.rounds,
    CASE metric.better WHEN 'higher' THEN -cost.log ELSE cost.log END AS log
FROM cost
JOIN experiment ON experiment.id = cost.experiment
JOIN metric ON metric.id = cost.metric
LEFT JOIN facts ON facts.experiment = cost.experiment AND facts.path = 'host'
WHERE cost.rounds >= {rounds}
