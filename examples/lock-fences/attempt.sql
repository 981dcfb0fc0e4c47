INSERT INTO lock_attempts VALUES (:lock, :work, :fence, :attempt)
  ON CONFLICT (lock, work) DO UPDATE SET attempt = excluded.attempt WHERE excluded.attempt >= lock_attempts.attempt;
