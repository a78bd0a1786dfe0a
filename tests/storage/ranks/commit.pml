/* The commit over many ranks, as docs/ranks.md has it, for spin. It was written from the text alone, and shares nothing
   with the code. It is long because spin checks one file.

   One job of RANKS ranks saves one step. If the power is lost, the job starts again and saves one step in its second
   life. So the second life meets what an earlier attempt left in the folders. Here an attempt is the number of the life
   in which it is made, 0 or 1. The ranks know it by the number of its epoch.

   Any moment may bring the death of a rank, a newer holder, and the deadline of a process that waits. One sync may
   fail. The power may be lost once. A vote or an outcome is a bit that stays set. A reader may take notice of it now,
   later or never: that is what a message does that is lost, late, repeated, or read in an old version.

   Check has the properties (a) to (d). Property (e): each process ends that is not killed. Its label `end` says where
   it may stop, so spin reports any other stop as an invalid end state.

   LEFT_OUT_... leaves out one rule; commit_model_test.py lists them. NEVER_... says that no caller is ever told so.
   STORAGE_LOSS is another fault: the machine that holds the files loses its power, and the ranks live on. */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef FAILED_SYNCS
#define FAILED_SYNCS 1
#endif

#define ALL ((1 << RANKS) - 1)
#define BIT(rank) (1 << rank)
#define LARGER(x, y) ((x) > (y) -> (x) : (y))

/* The processes that append. Participants have the numbers of their ranks. */
#define COORDINATOR RANKS
#define NEWER_HOLDER (RANKS + 1)
#define GONE 255

/* The journal. Positions count from 1, and 0 is no entry. An entry without facts is not in it, since all that matters
   of it is how many entries stand before it. pending[] has the position up to which a process's next sync makes the
   journal durable, or GONE if the entry itself was lost.
   epoch_at[] and number[] have three epochs: of the first life, of the second life, of the newer holder. */
byte visible;
byte durable;
byte epoch_at[3];
byte number[3];
byte commit_at[2];
byte pending[RANKS + 2];

/* The files of each attempt, one bit for each rank: shards that are there, those that are durable, votes. */
byte shards[2];
byte synced[2];
byte yes[2];
byte no[2];
bool said_committed[2];
bool said_aborted[2];

/* What callers were told of each attempt, in any rank. */
bool told_committed[2];
bool told_aborted[2];

byte life;
byte started = RANKS + 2;
bool alive[RANKS] = true;
bool faults = true; /* Ranks may be killed. */
byte failed_syncs = FAILED_SYNCS;
bool power_may_fail = true;
#ifdef LEFT_OUT_ONE_LIFE_IN_AN_EPOCH
bool a_rank_may_return = true;
#endif

#define STANDS(epoch, entries) (epoch_at[epoch] != 0 && epoch_at[epoch] <= entries)
#define NEWER_IS(epoch, attempt, entries) (STANDS(epoch, entries) && number[epoch] > number[attempt])
#define NEWER(attempt, entries) \
  (NEWER_IS(0, attempt, entries) || NEWER_IS(1, attempt, entries) || NEWER_IS(2, attempt, entries))
#define COMMITTED(attempt, entries) \
  (commit_at[attempt] != 0 && commit_at[attempt] <= entries && !NEWER(attempt, commit_at[attempt]))
#define NUMBER(epoch) (epoch_at[epoch] != 0 -> number[epoch] : 0)
#define NEWEST LARGER(NUMBER(0), LARGER(NUMBER(1), NUMBER(2)))

/* (a) No two ranks are told different outcomes of one attempt.
   (b) What was told as committed stands, with each rank's shard.
   (c) What was told as aborted never counts.
   (d) A holder that finds a commit established finds each rank's shard.
   A holder may open at any moment, so all are checked after each change. A variable for each of them makes spin's
   message say which one is broken. */
bool broken_a, broken_b, broken_c, broken_d;

#define TWO_OUTCOMES(attempt) (told_committed[attempt] && told_aborted[attempt])
#define LOST(attempt) (told_committed[attempt] && !(COMMITTED(attempt, visible) && shards[attempt] == ALL))
#define RISEN(attempt) (told_aborted[attempt] && COMMITTED(attempt, durable))
#define INCOMPLETE(attempt) (COMMITTED(attempt, durable) && shards[attempt] != ALL)

inline Check() {
  broken_a = TWO_OUTCOMES(0) || TWO_OUTCOMES(1);
  broken_b = LOST(0) || LOST(1);
  broken_c = RISEN(0) || RISEN(1);
  broken_d = INCOMPLETE(0) || INCOMPLETE(1);
  assert(!broken_a);
  assert(!broken_b);
  assert(!broken_c);
  assert(!broken_d)
}

/* What a rank tells its caller. */
inline TellCommitted(attempt) {
  told_committed[attempt] = true;
#ifdef NEVER_COMMITTED
  assert(false);
#endif
  Check()
}

inline TellAborted(attempt) {
  told_aborted[attempt] = true;
#ifdef NEVER_ABORTED
  assert(false);
#endif
  Check()
}

inline TellUnknown(attempt) {
#ifdef NEVER_UNKNOWN
  assert(false);
#endif
#ifdef LEFT_OUT_UNKNOWN
  told_aborted[attempt] = true;
#endif
  Check()
}

/* An append takes the number behind all that its writer has read, or none. So it is one step. */
inline BeginEpoch(epoch, writer) {
  number[epoch] = NEWEST + 1;
  visible++;
  epoch_at[epoch] = visible;
  pending[writer] = visible;
  Check()
}

inline AppendCommit(attempt) {
  visible++;
  commit_at[attempt] = visible;
  pending[COORDINATOR] = visible;
  Check()
}

inline AppendWithoutFacts(writer) {
  pending[writer] = visible
}

/* A sync fails, and the writer appends another entry. Its first entry is there, or it would not go on. */
#define FAILS_AND_SETTLES(writer) (failed_syncs > 0 && pending[writer] != GONE)

inline SettleAfterFailure(writer) {
  failed_syncs--;
  AppendWithoutFacts(writer)
}

inline Establish(writer) {
  durable = LARGER(durable, pending[writer]);
  Check()
}

/* What a reader takes for statements about its attempt. Two epochs have one number if the entry of the first was cut
   off, and was not known to the second holder. */
#define OTHER(attempt) (1 - attempt)
#ifdef UNIQUE_NAMES
#define SAME_NAME false
#else
#define SAME_NAME (number[0] == number[1])
#endif
#ifdef LEFT_OUT_IDENTITY_OF_VOTES
#define VOTES(said, attempt) (said[0] | said[1])
#else
#define VOTES(said, attempt) (said[attempt] | (SAME_NAME -> said[OTHER(attempt)] : 0))
#endif
#ifdef LEFT_OUT_IDENTITY_OF_OUTCOMES
#define OUTCOME(said, attempt) (said[0] || said[1])
#else
#define OUTCOME(said, attempt) (said[attempt] || (SAME_NAME && said[OTHER(attempt)]))
#endif

/* A rank's processes run while it lives. For the second life they start again one after the other, and then run: one
   that starts late is not told from one that is slow. */
#define ALL_STARTED (started == RANKS + 2)
#define RUNS(rank) (ALL_STARTED && alive[rank])
#define OR_IS_KILLED(rank, writer) \
  :: d_step { faults && RUNS(rank) -> alive[rank] = false; pending[writer] = 0 } goto end \
  :: d_step { ALL_STARTED && !alive[rank] -> pending[writer] = 0 } goto end
#define OR_STARTS_AGAIN(writer) \
  :: d_step { started == writer -> started++ } goto begin

/* The participant's rules. It takes part in the epoch that its own job began, once that is established. */
#ifdef LEFT_OUT_EPOCH_ESTABLISHED
#define MAY_TAKE_PART STANDS(life, visible)
#else
#define MAY_TAKE_PART STANDS(life, durable)
#endif
#ifdef LEFT_OUT_COMMIT_ESTABLISHED_TO_PARTICIPANT
#define SEEN_FOR_COMMIT visible
#else
#define SEEN_FOR_COMMIT durable
#endif
#ifdef LEFT_OUT_NEWER_EPOCH_ESTABLISHED
#define SEEN_FOR_ABORT visible
#else
#define SEEN_FOR_ABORT durable
#endif
#ifdef LEFT_OUT_COMMIT_BEFORE_NEWER_EPOCH
#define SUPERSEDED(attempt, entries) NEWER(attempt, entries)
#else
#define SUPERSEDED(attempt, entries) (NEWER(attempt, entries) && !COMMITTED(attempt, entries))
#endif
#ifdef STORAGE_LOSS
#define SYNC_MAY_WORK(attempt, rank) ((shards[attempt] & BIT(rank)) != 0)
#else
#define SYNC_MAY_WORK(attempt, rank) true
#endif

inline WriteShard(attempt, rank) {
  shards[attempt] = shards[attempt] | BIT(rank);
  synced[attempt] = synced[attempt] & ~BIT(rank);
  Check()
}

/* The shard is durable, if the sweep has not removed it. */
inline SyncShard(attempt, rank) {
  synced[attempt] = synced[attempt] | (shards[attempt] & BIT(rank))
}

proctype Participant(byte rank) {
begin:
  if
  :: d_step { RUNS(rank) && MAY_TAKE_PART -> WriteShard(life, rank) }
  :: d_step { RUNS(rank) && MAY_TAKE_PART -> skip } goto vote_no /* It could not write. */
  :: d_step { RUNS(rank) -> TellUnknown(life) } goto end /* It learned of no epoch. */
#ifdef LEFT_OUT_OWN_EPOCH
  :: d_step { /* It takes the first life's epoch for its own, and writes over a shard of it. */
       RUNS(rank) && life == 1 && STANDS(0, durable) -> shards[0] = shards[0] & ~BIT(rank);
       Check()
     }
     goto end
#endif
  OR_IS_KILLED(rank, rank)
  OR_STARTS_AGAIN(rank)
  fi;

  if
  :: d_step { RUNS(rank) && SYNC_MAY_WORK(life, rank) -> SyncShard(life, rank) }
  :: d_step { RUNS(rank) && failed_syncs > 0 -> failed_syncs-- }
#ifndef LEFT_OUT_NO_AFTER_FAILED_SYNC
     goto vote_no
#endif
#ifdef LEFT_OUT_SYNC_BEFORE_VOTE
  :: d_step { RUNS(rank) -> skip }
#endif
#ifdef STORAGE_LOSS
  :: d_step { RUNS(rank) && !SYNC_MAY_WORK(life, rank) -> skip } goto vote_no
#endif
  :: d_step { RUNS(rank) -> AppendWithoutFacts(rank) } goto settle /* Its deadline is near, and it has no vote. */
  OR_IS_KILLED(rank, rank)
  OR_STARTS_AGAIN(rank)
  fi;

  if
  :: d_step { RUNS(rank) -> yes[life] = yes[life] | BIT(rank) } goto wait
  OR_IS_KILLED(rank, rank)
  OR_STARTS_AGAIN(rank)
  fi;

vote_no:
  if
  :: d_step { RUNS(rank) -> no[life] = no[life] | BIT(rank) }
  OR_IS_KILLED(rank, rank)
  OR_STARTS_AGAIN(rank)
  fi;

wait:
  if
  :: d_step { RUNS(rank) && OUTCOME(said_committed, life) -> TellCommitted(life) } goto end
  :: d_step { RUNS(rank) && OUTCOME(said_aborted, life) -> TellAborted(life) } goto end
  :: d_step { RUNS(rank) && COMMITTED(life, SEEN_FOR_COMMIT) -> TellCommitted(life) } goto end
  :: d_step { RUNS(rank) && SUPERSEDED(life, SEEN_FOR_ABORT) -> TellAborted(life) } goto end
#ifndef LEFT_OUT_DEADLINE
  :: d_step { RUNS(rank) -> AppendWithoutFacts(rank) }
#endif
  OR_IS_KILLED(rank, rank)
  OR_STARTS_AGAIN(rank)
  fi;

settle:
  if
  :: d_step {
       RUNS(rank) && pending[rank] != GONE ->
       Establish(rank);
       if
       :: COMMITTED(life, pending[rank]) -> TellCommitted(life)
       :: SUPERSEDED(life, pending[rank]) -> TellAborted(life)
       :: else -> TellUnknown(life)
       fi;
       pending[rank] = 0
     }
  :: d_step { /* The append failed, or its sync did. */
       RUNS(rank) ->
#ifdef LEFT_OUT_SYNC_OF_SETTLING
       if
       :: COMMITTED(life, pending[rank]) -> TellCommitted(life)
       :: else -> TellUnknown(life)
       fi;
#else
       TellUnknown(life);
#endif
       pending[rank] = 0
     }
  OR_IS_KILLED(rank, rank)
  OR_STARTS_AGAIN(rank)
  fi;

end:
  if
  OR_STARTS_AGAIN(rank)
#ifdef LEFT_OUT_ONE_LIFE_IN_AN_EPOCH
  :: d_step {
       a_rank_may_return && rank != 0 && ALL_STARTED && !alive[rank] -> a_rank_may_return = false;
       alive[rank] = true
     }
     goto begin
#endif
  fi
}

/* The coordinator's rules. It is in rank 0's process, and dies with it. */
#ifdef LEFT_OUT_EVERY_VOTE
#define YES_OF_EACH(attempt) ((VOTES(yes, attempt) | BIT(0)) == ALL)
#else
#define YES_OF_EACH(attempt) (VOTES(yes, attempt) == ALL)
#endif
#ifdef LEFT_OUT_FENCE
#define FENCED(attempt) false
#else
#define FENCED(attempt) NEWER(attempt, visible)
#endif

inline SayCommitted(attempt) {
  said_committed[attempt] = true;
  pending[COORDINATOR] = 0
}

/* The decision is final in memory before it is said. What another process sees of it is one step. */
inline SayAborted(attempt) {
  said_aborted[attempt] = true;
  pending[COORDINATOR] = 0
}

proctype Coordinator() {
begin:
  if
  :: d_step { RUNS(0) -> BeginEpoch(life, COORDINATOR) }
  OR_IS_KILLED(0, COORDINATOR)
  OR_STARTS_AGAIN(COORDINATOR)
  fi;

open:
  if
  :: d_step { RUNS(0) && pending[COORDINATOR] != GONE -> Establish(COORDINATOR); pending[COORDINATOR] = 0 }
  :: d_step { RUNS(0) && FAILS_AND_SETTLES(COORDINATOR) -> SettleAfterFailure(COORDINATOR) } goto open
#ifdef STORAGE_LOSS
  :: d_step { RUNS(0) && pending[COORDINATOR] == GONE -> pending[COORDINATOR] = 0 } goto end
#endif
  OR_IS_KILLED(0, COORDINATOR)
  OR_STARTS_AGAIN(COORDINATOR)
  fi;

hear:
  if
  :: d_step { RUNS(0) && YES_OF_EACH(life) && !FENCED(life) -> AppendCommit(life) }
  :: d_step { RUNS(0) && YES_OF_EACH(life) && FENCED(life) -> SayAborted(life) } goto aborted
  :: d_step { RUNS(0) && VOTES(no, life) != 0 -> SayAborted(life) } goto aborted
  :: d_step { RUNS(0) -> SayAborted(life) } goto aborted /* Its deadline, or an append that failed without an entry. */
  OR_IS_KILLED(0, COORDINATOR)
  OR_STARTS_AGAIN(COORDINATOR)
  fi;

#ifdef LEFT_OUT_COMMIT_ESTABLISHED_TO_COORDINATOR
  if
  :: d_step { RUNS(0) -> said_committed[life] = true }
  OR_IS_KILLED(0, COORDINATOR)
  OR_STARTS_AGAIN(COORDINATOR)
  fi;
#endif

commit:
  if
  :: d_step { RUNS(0) && pending[COORDINATOR] != GONE -> Establish(COORDINATOR); SayCommitted(life) } goto end
  :: d_step { RUNS(0) && failed_syncs > 0 -> failed_syncs-- }
#ifdef STORAGE_LOSS
  :: d_step { RUNS(0) && pending[COORDINATOR] == GONE -> skip }
#endif
  OR_IS_KILLED(0, COORDINATOR)
  OR_STARTS_AGAIN(COORDINATOR)
  fi;

  /* The outcome of its append is unknown to it. It settles, or finds that its entry was lost. */
  if
  :: d_step { RUNS(0) && commit_at[life] != 0 -> AppendWithoutFacts(COORDINATOR) } goto commit
#ifdef LEFT_OUT_SETTLING
  :: d_step { RUNS(0) -> SayAborted(life) } goto end
#endif
#ifdef LEFT_OUT_SETTLING_IS_NOT_FENCED
  :: d_step { RUNS(0) && FENCED(life) -> SayAborted(life) } goto end
#endif
#ifdef STORAGE_LOSS
  :: d_step { RUNS(0) && commit_at[life] == 0 -> SayAborted(life) } goto end
#endif
  OR_IS_KILLED(0, COORDINATOR)
  OR_STARTS_AGAIN(COORDINATOR)
  fi;

aborted:
#ifdef LEFT_OUT_FINAL_ABORT
  if
  :: d_step { RUNS(0) && YES_OF_EACH(life) && !FENCED(life) -> AppendCommit(life) } goto commit
  :: d_step { RUNS(0) -> skip }
  OR_IS_KILLED(0, COORDINATOR)
  OR_STARTS_AGAIN(COORDINATOR)
  fi;
#endif

end:
  if
  OR_STARTS_AGAIN(COORDINATOR)
  fi
}

/* A holder that opens, restores and does not save. It removes older attempts without a commit that stands. */
inline Sweep(attempt) {
  if
  :: number[attempt] < number[2] && !COMMITTED(attempt, pending[NEWER_HOLDER]) ->
     shards[attempt] = 0;
     synced[attempt] = 0
  :: else
  fi
}

proctype NewerHolder() {
begin:
  if
  :: d_step {
       ALL_STARTED -> BeginEpoch(2, NEWER_HOLDER);
#ifdef LEFT_OUT_SWEEP_AFTER_ESTABLISHED
       Sweep(0);
       Sweep(1);
#endif
       Check()
     }
  :: !faults -> goto end
  OR_STARTS_AGAIN(NEWER_HOLDER)
  fi;

open:
  if
  :: d_step {
       ALL_STARTED && pending[NEWER_HOLDER] != GONE ->
       Establish(NEWER_HOLDER);
       Sweep(0);
       Sweep(1);
       Check();
       pending[NEWER_HOLDER] = 0
     }
  :: d_step { ALL_STARTED && FAILS_AND_SETTLES(NEWER_HOLDER) -> SettleAfterFailure(NEWER_HOLDER) } goto open
  :: d_step { ALL_STARTED && (faults || pending[NEWER_HOLDER] == GONE) -> pending[NEWER_HOLDER] = 0 }
  :: started == NEWER_HOLDER -> goto end
  fi;

end:
  if
  :: started == NEWER_HOLDER -> started++; goto end
  fi
}

/* The power is lost. The journal stands up to some position, and all of it is durable then. Of shards there are those
   that were synced. */
#define LEFT(position) (position <= durable -> position : 0)

inline Lose() {
  do
  :: durable < visible -> durable++
  :: break
  od;
  i = 0;
  d_step {
    visible = durable;
    epoch_at[0] = LEFT(epoch_at[0]);
    epoch_at[1] = LEFT(epoch_at[1]);
    epoch_at[2] = LEFT(epoch_at[2]);
    commit_at[0] = LEFT(commit_at[0]);
    commit_at[1] = LEFT(commit_at[1]);
    do
    :: i < RANKS + 2 -> pending[i] = (pending[i] > durable -> GONE : pending[i]); i++
    :: else -> break
    od;
    shards[0] = synced[0];
    shards[1] = synced[1];
    Check()
  }
}

/* The second life. No process is left that could commit the first attempt, so what was told of it is now confirmed for
   good or was found broken. It is forgotten, and so are shards that no commit needs: fewer states are left. */
inline StartAgain() {
  i = 0;
  d_step {
    if
    :: !COMMITTED(0, durable) -> shards[0] = 0; synced[0] = 0
    :: else
    fi;
    told_committed[0] = false;
    told_aborted[0] = false;
    do
    :: i < RANKS -> alive[i] = true; pending[i] = 0; i++
    :: else -> break
    od;
    pending[COORDINATOR] = 0;
    pending[NEWER_HOLDER] = 0;
    started = 0;
    life = 1
  }
}

proctype Surroundings() {
  byte i;

  do
  :: atomic {
       power_may_fail -> power_may_fail = false;
       Lose();
#ifndef STORAGE_LOSS
       StartAgain();
#endif
       i = 0
     }
  :: break
  od;
  faults = false
}

init {
  byte i;

  atomic {
    run Surroundings();
    run NewerHolder();
    run Coordinator();
    do
    :: i < RANKS -> run Participant(i); i++
    :: else -> break
    od
  }
}
