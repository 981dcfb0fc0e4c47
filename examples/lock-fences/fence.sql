INSERT INTO lock_fences VALUES (:lock, :fence)
  ON CONFLICT (lock) DO UPDATE SET fence = excluded.fence WHERE excluded.fence >= lock_fences.fence;
