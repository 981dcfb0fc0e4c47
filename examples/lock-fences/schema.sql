CREATE TABLE lock_fences (lock TEXT PRIMARY KEY, fence BIGINT NOT NULL);
CREATE TABLE lock_attempts (lock TEXT, work TEXT, fence BIGINT NOT NULL, attempt BIGINT NOT NULL, PRIMARY KEY (lock, work));
CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT NOT NULL);
