-- Runs a piece of Lua that sees KEYS, ARGV and a short `redis`, and knows whether it has written. What it does not see, and why:
-- SELECT would move the store's own record, set_repl would keep it from the log, Valkey's `server` would go round this one, and _G and
-- the debug library would give back the real ones. [CKP-TRANSACT-OWN]
local FORBIDDEN = ' SELECT SWAPDB MOVE FLUSHALL FLUSHDB SCRIPT FUNCTION '
-- Whatever is not here counts as a write: once it has succeeded when the server knows it, else before it is tried.
local READS = ' GET MGET STRLEN GETRANGE SUBSTR GETBIT BITCOUNT BITPOS BITFIELD_RO LCS EXISTS TYPE TTL PTTL EXPIRETIME PEXPIRETIME'
  .. ' OBJECT DUMP RANDOMKEY KEYS SCAN DBSIZE SORT_RO HGET HMGET HGETALL HKEYS HVALS HLEN HEXISTS HSTRLEN HSCAN HRANDFIELD LLEN LRANGE'
  .. ' LINDEX LPOS SCARD SMEMBERS SISMEMBER SMISMEMBER SRANDMEMBER SINTER SUNION SDIFF SINTERCARD SSCAN ZCARD ZCOUNT ZLEXCOUNT ZSCORE'
  .. ' ZMSCORE ZRANK ZREVRANK ZRANGE ZREVRANGE ZRANGEBYSCORE ZREVRANGEBYSCORE ZRANGEBYLEX ZREVRANGEBYLEX ZRANDMEMBER ZINTER ZUNION'
  .. ' ZDIFF ZINTERCARD ZSCAN XLEN XRANGE XREVRANGE XPENDING XINFO GEOPOS GEODIST GEOHASH GEOSEARCH GEORADIUS_RO GEORADIUSBYMEMBER_RO'
  .. ' TIME PING ECHO '
local wrote = false

local function caller(raises)
  return function(command, ...)
    local name = ' ' .. string.upper(tostring(command)) .. ' '
    if string.find(FORBIDDEN, name, 1, true) then
      error('an effect must not call' .. string.sub(name, 1, -2), 0)
    end
    local reads, module = string.find(READS, name, 1, true), string.find(name, '.', 1, true)
    wrote = wrote or module ~= nil
    local reply = redis.pcall(command, ...)
    if type(reply) == 'table' and reply.err then
      if raises then
        error(reply.err, 0)
      end
    else
      wrote = wrote or not reads
    end
    return reply
  end
end

local function effect(source, keys, args)
  local head = 'local KEYS, ARGV, redis, server, _G, load, loadstring, getfenv, setfenv, debug, getmetatable = ...; '
  local chunk, wrong = loadstring(head .. source, '=effect')
  if not chunk then
    return false, wrong
  end
  local api = {
    call = caller(true), pcall = caller(false), sha1hex = redis.sha1hex, error_reply = redis.error_reply,
    status_reply = redis.status_reply, setresp = redis.setresp, log = redis.log, LOG_DEBUG = redis.LOG_DEBUG,
    LOG_VERBOSE = redis.LOG_VERBOSE, LOG_NOTICE = redis.LOG_NOTICE, LOG_WARNING = redis.LOG_WARNING,
  }
  local ok, given = pcall(chunk, keys, args, api, api)
  redis.setresp(2)
  if type(given) == 'table' and given.err then
    return false, given.err
  end
  return ok, given
end
