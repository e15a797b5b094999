allostat_exposition_info kind 1 unit "": What is in this body: the families of a profile (lean, standard or full; allostat catalogue --profile lists each), with what telemetry.include adds to it and telemetry.exclude takes from it. A family that is not here may be there, and not be exposed.
  {profile="standard"} 1
allostat_build_info kind 1 unit "": Which allostat this is. schema: of the metric names and labels; it changes when one is renamed.
  {version="0.1.0",schema="1"} 1
allostat_alloc_info kind 1 unit "": What the alloc is. Join with: * on (job, instance, alloc_id) group_left (task_group, name) allostat_alloc_info. measured: by cgroup, by adding up processes, or not at all. aggregation: its values come from its own cgroup, or are sums over tasks.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",task_group="app",alloc_ns="default",name="shop.app[0]",source="managed",cgroup="/allostat/00000000-0000-4000-8000-000000000001",measured="cgroup",aggregation="cgroup"} 1
  {alloc_id="00000000-0000-4000-8000-000000000002",workload="nightly\nbatch",task_group="app",alloc_ns="default",name="nightly\nbatch.app[0]",source="managed",measured="process",aggregation="sum"} 1
allostat_task_info kind 1 unit "": What the task is. cgroup_version: v1, v2 or hybrid (v1 controllers with a unified tree beside them).
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",driver="raw_exec",user="www \"data\"",cgroup_version="hybrid"} 1
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",driver="raw_exec",cgroup_version="hybrid"} 1
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",driver="raw_exec"} 1
allostat_task_memory_usage_bytes kind 1 unit "bytes": Memory charged to the cgroup: anonymous, page cache and kernel memory. Page cache counts here and is given up under pressure: see memory_working_set_bytes.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001939
allostat_task_memory_peak_bytes kind 1 unit "bytes": Highest memory_usage_bytes of the whole life, as the kernel kept it: exact also for tasks shorter than the sampling interval. Over restarts the maximum of all attempts.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 18446744073709552000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000001823
allostat_task_memory_window_peak_bytes kind 1 unit "bytes": Highest memory_usage_bytes of the last 60 s, as the kernel kept it: its peak is read and reset each 5 s, so that a scraper of up to 60 s misses no spike. What rises between a reading and its reset, some microseconds, is not in it; on cgroup v1 it is not in memory_peak_bytes either.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40002582
allostat_task_memory_sampled_peak_bytes kind 1 unit "bytes": Highest memory_usage_bytes that was sampled, only where the kernel keeps no peak: what rose and fell between two samples is missed.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40002660
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000002660
allostat_task_memory_working_set_bytes kind 1 unit "bytes": memory_usage_bytes less the inactive page cache of the same moment, not below 0: what cannot be given up easily.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40002602
allostat_task_memory_rss_bytes kind 1 unit "bytes": Anonymous memory of the cgroup. Where the task is measured by its processes: the sum of their resident sets, with shared pages counted in each.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001750
allostat_task_memory_limit_bytes kind 1 unit "bytes": Lowest memory limit from the cgroup up to the root: where the OOM killer begins.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001949
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000001949
allostat_task_oom_kills_total kind 0 unit "": Processes of the task that the OOM killer ended.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 9007199254740992 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000000969 created 1767323045.000000000
allostat_task_cpu_usage_seconds_total kind 0 unit "seconds": CPU time used by all processes that were ever in the cgroup, those that have ended included.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 0.040001281 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1.000001276 created 1767323045.000000000
allostat_task_cpu_cfs_periods_total kind 0 unit "": Periods of the quota in which the task wanted to run.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001592 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000001592 created 1767323045.000000000
allostat_task_cpu_cfs_throttled_periods_total kind 0 unit "": Periods of the quota in which the task used it up and had to wait.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40002673 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000002673 created 1767323045.000000000
allostat_task_cpu_limit_cores kind 1 unit "cores": How many CPUs the quota allows: quota / period.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 0.9999977750774829
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 0.999999911000124
allostat_task_io_read_bytes_total kind 0 unit "bytes": Bytes that the task read from block devices; what the page cache served is not counted.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001369 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000001369 created 1767323045.000000000
allostat_task_io_written_bytes_total kind 0 unit "bytes": Bytes that the task wrote to block devices. On cgroup v1 only direct and synchronous writes are charged to the task: buffered ones are written back later by the kernel, and not counted here.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001738 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000001738 created 1767323045.000000000
allostat_task_pids_current kind 1 unit "": Processes and threads now.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001298
allostat_task_pids_limit kind 1 unit "": Most processes and threads that the task may have.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001070
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000001070
allostat_task_network_receive_bytes_total kind 0 unit "bytes": Bytes that came in over the task's own network, all its interfaces but the loopback.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40002258 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000002258 created 1767323045.000000000
allostat_task_network_transmit_bytes_total kind 0 unit "bytes": Bytes that the task sent over its own network.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40002401 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000002401 created 1767323045.000000000
allostat_task_pressure_stall_seconds_total kind 0 unit "seconds": Time in which some, or all, runnable processes of the task waited for the resource.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",resource="cpu",kind="some"} 0.040002163 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",resource="cpu",kind="full"} 0.040002162 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",resource="memory",kind="some"} 0.0400025 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",resource="memory",kind="full"} 0.040002499 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",resource="io",kind="some"} 0.040002051 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",resource="io",kind="full"} 0.04000205 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",resource="irq",kind="full"} 0.040002166 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",resource="cpu",kind="some"} 1.000002163 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",resource="cpu",kind="full"} 1.000002162 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",resource="memory",kind="some"} 1.0000025 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",resource="memory",kind="full"} 1.000002499 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",resource="io",kind="some"} 1.000002051 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",resource="io",kind="full"} 1.00000205 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",resource="irq",kind="full"} 1.000002166 created 1767323045.000000000
allostat_alloc_memory_usage_bytes kind 1 unit "bytes": Memory charged to the cgroup: anonymous, page cache and kernel memory. Page cache counts here and is given up under pressure: see memory_working_set_bytes. Of the whole alloc.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop"} 50001939
allostat_alloc_memory_peak_bytes kind 1 unit "bytes": Highest memory_usage_bytes of the whole life, as the kernel kept it: exact also for tasks shorter than the sampling interval. Over restarts the maximum of all attempts. Of the whole alloc.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop"} 18446744073709552000
allostat_alloc_memory_working_set_bytes kind 1 unit "bytes": memory_usage_bytes less the inactive page cache of the same moment, not below 0: what cannot be given up easily. Of the whole alloc.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop"} 50002602
allostat_workload_oom_kills_total kind 0 unit "": Processes of the task that the OOM killer ended. All allocs of the workload, live and ended; never falls.
  {task="web",workload="shop"} 9007199254740992 created 1767322944.999999993
  {task="step",workload="nightly\nbatch"} 1000000969 created 1767322944.999999993 # alloc_id="00000000-0000-4000-8000-000000000002",event_id="18446744073709551615" 1000000969 1767323045.000000000
allostat_workload_cpu_usage_seconds_total kind 0 unit "seconds": CPU time used by all processes that were ever in the cgroup, those that have ended included. All allocs of the workload, live and ended; never falls.
  {task="web",workload="shop"} 0.040001276 created 1767322944.999999993
  {task="step",workload="nightly\nbatch"} 1.000001276 created 1767322944.999999993
allostat_task_device_memory_used_bytes kind 1 unit "bytes": Memory of the device that the task's processes hold.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",device_uuid="GPU-0"} 3000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",device_uuid="GPU-0"} 1000000
allostat_task_device_memory_peak_bytes kind 1 unit "bytes": Most memory of the device that the task was seen to hold; where the driver keeps accounts of processes, at least the most that one of its own ever held.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",device_uuid="GPU-0"} 6000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",device_uuid="GPU-0"} 2000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",device_uuid="GPU-0"} 14
allostat_task_device_sm_utilization_ratio kind 1 unit "ratio": Share of the time in which the task had the device's processors at work.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",device_uuid="GPU-0"} 0.25
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",device_uuid="GPU-0"} 0.25
allostat_task_device_processes kind 1 unit "": Processes of the task that hold the device; 0: it was given the device and does not use it.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",device_uuid="GPU-0"} 1
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",device_uuid="GPU-0"} 1
allostat_task_device_energy_joules_total kind 0 unit "joules": Energy that the whole device used while the task held it alone.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",device_uuid="GPU-0"} 3000.001 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",device_uuid="GPU-0"} 1000.001 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",device_uuid="GPU-0"} 0.008 created 1767323045.000000000
allostat_task_device_xid_errors_total kind 0 unit "": Errors that the driver told of while the task held or used the device.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",device_uuid="GPU-0"} 2 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",device_uuid="GPU-0"} 2 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",device_uuid="GPU-0"} 2 created 1767323045.000000000
allostat_alloc_device_memory_used_bytes kind 1 unit "bytes": Memory of the device that the task's processes hold. Sum over the tasks of the alloc.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",device_uuid="GPU-0"} 4000000
allostat_alloc_device_sm_utilization_ratio kind 1 unit "ratio": Share of the time in which the task had the device's processors at work. Sum over the tasks of the alloc.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",device_uuid="GPU-0"} 0.5
allostat_alloc_device_processes kind 1 unit "": Processes of the task that hold the device; 0: it was given the device and does not use it. Sum over the tasks of the alloc.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",device_uuid="GPU-0"} 2
allostat_alloc_device_energy_joules_total kind 0 unit "joules": Energy that the whole device used while the task held it alone. Sum over the tasks of the alloc.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",device_uuid="GPU-0"} 4000.002 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",workload="nightly\nbatch",device_uuid="GPU-0"} 0.008 created 1767323045.000000000
allostat_alloc_device_xid_errors_total kind 0 unit "": Errors that the driver told of while the task held or used the device. Sum over the tasks of the alloc.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",device_uuid="GPU-0"} 2 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",workload="nightly\nbatch",device_uuid="GPU-0"} 2 created 1767323045.000000000
allostat_alloc_device_info kind 1 unit "": The alloc has the device, or an instance of it. reserved: it was given to it, whether it is used or not.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",device_uuid="GPU-0",reserved="true"} 1
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",device_uuid="GPU-2",gpu_instance_id="7",mig_uuid="MIG-2-7",reserved="true"} 1
allostat_task_state kind 1 unit "": 1 for the state that the task is in, 0 for the others.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="pending"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="starting"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="running"} 1
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="backoff"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="killing"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="dead"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",state="pending"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",state="starting"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",state="running"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",state="backoff"} 1
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",state="killing"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",state="dead"} 0
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",state="pending"} 0
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",state="starting"} 0
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",state="running"} 0
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",state="backoff"} 0
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",state="killing"} 0
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",state="dead"} 1
allostat_task_state_since_timestamp_seconds kind 1 unit "seconds": When the task came into its present state.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 1767322955
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop"} 1767323044
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1767323043
allostat_task_time_in_state_seconds_total kind 0 unit "seconds": Time that the task spent in each state, the present one included, whether or not the agent was there.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="running"} 90.000000001 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="backoff"} 30.5 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",state="backoff"} 1 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",state="dead"} 2 created 1767323045.000000000
allostat_task_restarts_total kind 0 unit "": Times the task was started again, each when it begins. policy: after an exit; oom: after an exit by OOM; start_failure: it could not be started; requested: somebody asked. Of what others run by how it had ended, whoever started it again: oom; failure: an error, or a signal by which nobody asks for an end; other: an end that was clean, asked for or unseen.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",reason="policy"} 2 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",reason="oom"} 1 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",reason="start_failure"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",reason="requested"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",reason="policy"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",reason="oom"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",reason="start_failure"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",reason="requested"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",reason="policy"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",reason="oom"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",reason="start_failure"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",reason="requested"} 0 created 1767323045.000000000
allostat_allocs kind 1 unit "": Allocs that the agent knows, by state.
  {state="pending"} 0
  {state="running"} 1
  {state="complete"} 0
  {state="failed"} 1
allostat_tasks kind 1 unit "": Tasks that the agent knows, by state.
  {state="pending"} 0
  {state="starting"} 0
  {state="running"} 1
  {state="backoff"} 1
  {state="killing"} 0
  {state="dead"} 1
allostat_host_allocated_memory_bytes kind 1 unit "bytes": Memory that job files give the tasks of allocs that have not ended. A task without a limit counts nothing.
  {} 134217728
allostat_host_allocated_cpu_cores kind 1 unit "cores": CPU quotas of running tasks. A task without a quota counts nothing.
  {} 0.9999977750774829
allostat_workload_restarts_total kind 0 unit "": Restarts of the task in all allocs of the workload, live and ended.
  {task="web",workload="shop",reason="policy"} 0 created 1767322944.999999993
  {task="web",workload="shop",reason="oom"} 0 created 1767322944.999999993
  {task="web",workload="shop",reason="start_failure"} 0 created 1767322944.999999993
  {task="web",workload="shop",reason="requested"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",reason="policy"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",reason="oom"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",reason="start_failure"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",reason="requested"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",reason="policy"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",reason="oom"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",reason="start_failure"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",reason="requested"} 0 created 1767322944.999999993
allostat_task_exits_total kind 0 unit "": Ended attempts of the task in all allocs of the workload, by how they ended. killed: we ended it, because somebody asked; signal: somebody else did; oom: the kernel's OOM killer; unknown: nobody saw it. One that could not be started is none.
  {task="web",workload="shop",outcome="success"} 0 created 1767322944.999999993
  {task="web",workload="shop",outcome="error"} 0 created 1767322944.999999993
  {task="web",workload="shop",outcome="signal"} 0 created 1767322944.999999993
  {task="web",workload="shop",outcome="oom"} 0 created 1767322944.999999993
  {task="web",workload="shop",outcome="killed"} 0 created 1767322944.999999993
  {task="web",workload="shop",outcome="unknown"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",outcome="success"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",outcome="error"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",outcome="signal"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",outcome="oom"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",outcome="killed"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",outcome="unknown"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",outcome="success"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",outcome="error"} 1 created 1767322944.999999993 # alloc_id="00000000-0000-4000-8000-000000000002",event_id="18446744073709551615" 1 1767323045.000000000
  {task="step",workload="nightly\nbatch",outcome="signal"} 1 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",outcome="oom"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",outcome="killed"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",outcome="unknown"} 0 created 1767322944.999999993
allostat_task_exit_codes_total kind 0 unit "": Exits with an error by code, and by a signal by its number.
  {task="step",workload="nightly\nbatch",code="3"} 1 created 1767322944.999999993 # alloc_id="00000000-0000-4000-8000-000000000002",event_id="18446744073709551615" 1 1767323045.000000000
  {task="step",workload="nightly\nbatch",signal="11"} 1 created 1767322944.999999993
allostat_task_events_total kind 0 unit "": Events of the task in all allocs of the workload, by kind.
  {task="step",workload="nightly\nbatch",event="terminated"} 1 created 1767322944.999999993
allostat_task_kill_escalations_total kind 0 unit "": Kills in which the task outlived its kill timeout and was ended by force.
  {task="web",workload="shop"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch"} 0 created 1767322944.999999993
allostat_task_given_up_total kind 0 unit "": Tasks called dead while something of them may live on: they outlived being killed by force (stuck in the kernel), or their driver did not answer. They are not started again.
  {task="web",workload="shop"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch"} 0 created 1767322944.999999993
allostat_task_log_lost_bytes_total kind 0 unit "bytes": Output of ended attempts of the task, in all allocs of the workload, that could not be written to its logs: their disk was full, or broken.
  {task="step",workload="nightly\nbatch",stream="stdout"} 7 created 1767322944.999999993
allostat_workload_failed_allocs kind 1 unit "": Allocs that have failed for good and whose place no later alloc has taken. restarts_used_up: a task was restarted as often as its policy allows; other: no restart is allowed or would help, it could not be set up, or it was given up.
  {workload="nightly\nbatch",reason="restarts_used_up"} 0
  {workload="nightly\nbatch",reason="other"} 1
  {workload="shop",reason="restarts_used_up"} 0
  {workload="shop",reason="other"} 0
allostat_alloc_run_seconds_total kind 0 unit "seconds": Time that ended allocs of the workload ran, by outcome: what they cost.
  {workload="nightly\nbatch",outcome="success"} 0 created -
  {workload="nightly\nbatch",outcome="error"} 7 created -
  {workload="nightly\nbatch",outcome="signal"} 0 created -
  {workload="nightly\nbatch",outcome="oom"} 0 created -
  {workload="nightly\nbatch",outcome="killed"} 0 created -
  {workload="nightly\nbatch",outcome="unknown"} 0 created -
  {workload="shop",outcome="success"} 0 created -
  {workload="shop",outcome="error"} 0 created -
  {workload="shop",outcome="signal"} 0 created -
  {workload="shop",outcome="oom"} 0 created -
  {workload="shop",outcome="killed"} 0 created -
  {workload="shop",outcome="unknown"} 0 created -
allostat_task_start_duration_seconds kind 4 unit "seconds": From a task's turn to its main process running, each attempt that came to run. What it waited for before (other tasks, an earlier alloc, a backoff) is in its states. Begins with the agent's process.
  {workload="shop"} count 1 sum 0.047 created 1767322045.000000000
    <= 0.005: 0
    <= 0.01: 0
    <= 0.05: 1 # alloc_id="6f1c2f3e-5b0a-4c1d-9a57-2d0c3b4a5e61" 0.047 1767323045.000000000
    <= 0.1: 1
    <= 0.5: 1
    <= 1: 1
    <= 5: 1
    <= 30: 1
    <= 300: 1
    <= inf: 1
    schema 3 zero 0 <= 2.938735877055719e-39 spans [-35+1] deltas [1]
allostat_task_kill_duration_seconds kind 4 unit "seconds": From a task's end being asked for to the whole process tree gone, or to the task being given up. Begins with the agent's process.
  {workload="shop"} count 1 sum 400 created 1767322045.000000000
    <= 0.01: 0
    <= 0.1: 0
    <= 0.5: 0
    <= 1: 0
    <= 5: 0
    <= 10: 0
    <= 30: 0
    <= 60: 0
    <= 300: 0
    <= inf: 1 # alloc_id="6f1c2f3e-5b0a-4c1d-9a57-2d0c3b4a5e61" 400 1767323045.000000000
    schema 3 zero 0 <= 2.938735877055719e-39 spans [70+1] deltas [1]
allostat_node_task_exits_total kind 0 unit "": Ended attempts in the agent's whole life, those of forgotten workloads included.
  {outcome="success"} 100 created -
  {outcome="error"} 1 created -
  {outcome="signal"} 1 created -
  {outcome="oom"} 2 created -
  {outcome="killed"} 0 created -
  {outcome="unknown"} 0 created -
allostat_node_task_oom_kills_total kind 0 unit "": Processes killed by OOM in tasks in the agent's whole life, where the kernel counts them.
  {} 9007201254742932 created -
allostat_node_task_restarts_total kind 0 unit "": Restarts of tasks in the agent's whole life.
  {reason="policy"} 0 created -
  {reason="oom"} 0 created -
  {reason="start_failure"} 0 created -
  {reason="requested"} 0 created -
allostat_node_cpu_usage_seconds_total kind 0 unit "seconds": CPU time of all tasks in the agent's whole life, live ones included.
  {} 2.040003828 created -
allostat_node_allocs_total kind 0 unit "": Allocs taken on in the agent's whole life.
  {} 102 created -
allostat_device_utilization_ratio kind 1 unit "ratio": Share of the time in which a part of the device was at work: the processors (general), memory, encoder, decoder. The driver averages over a sixth of a second to a second.
  {device_uuid="GPU-0",engine="general"} 0.875
  {device_uuid="GPU-0",engine="memory"} 0.5
  {device_uuid="GPU-0",engine="encoder"} 0
  {device_uuid="GPU-0",engine="decoder"} 1
allostat_device_memory_used_bytes kind 1 unit "bytes": Memory of the device in use, without what its driver reserves.
  {device_uuid="GPU-0"} 42949672960
allostat_device_memory_free_bytes kind 1 unit "bytes": Memory of the device that nobody uses.
  {device_uuid="GPU-0"} 41875931136
allostat_device_memory_reserved_bytes kind 1 unit "bytes": Memory of the device that its driver and firmware keep.
  {device_uuid="GPU-0"} 1073741824
allostat_device_memory_total_bytes kind 1 unit "bytes": Memory of the device.
  {device_uuid="GPU-0"} 85899345920
allostat_device_bar1_used_bytes kind 1 unit "bytes": Memory of the device that is mapped for the bus.
  {device_uuid="GPU-0"} 1048576
allostat_device_temperature_celsius kind 1 unit "celsius": Temperature of the device.
  {device_uuid="GPU-0",sensor="gpu"} 41
  {device_uuid="GPU-0",sensor="memory"} 52
allostat_device_temperature_threshold_celsius kind 1 unit "celsius": Temperature at which the device slows down, is switched off, or that its maker wants as the highest.
  {device_uuid="GPU-0",threshold="slowdown"} 87
  {device_uuid="GPU-0",threshold="shutdown"} 88
  {device_uuid="GPU-0",threshold="gpu_max"} 89
  {device_uuid="GPU-0",threshold="memory_max"} 90
allostat_device_power_watts kind 1 unit "watts": Power that the device draws now.
  {device_uuid="GPU-0"} 412.345
allostat_device_power_average_watts kind 1 unit "watts": Power that the device drew over the last second.
  {device_uuid="GPU-0"} 400.001
allostat_device_power_limit_watts kind 1 unit "watts": Power that the device may draw.
  {device_uuid="GPU-0"} 700
allostat_device_energy_joules_total kind 0 unit "joules": Energy that the device has used, as it counts it itself.
  {device_uuid="GPU-0"} 123456789.012 created -
allostat_device_clock_hertz kind 1 unit "hertz": Clock of a part of the device now.
  {device_uuid="GPU-0",domain="graphics"} 1980000000
  {device_uuid="GPU-0",domain="sm"} 1980000001
  {device_uuid="GPU-0",domain="memory"} 1980000002
  {device_uuid="GPU-0",domain="video"} 1980000003
allostat_device_clock_max_hertz kind 1 unit "hertz": Highest clock of a part of the device.
  {device_uuid="GPU-0",domain="graphics"} 2000000000
  {device_uuid="GPU-0",domain="sm"} 2000000001
  {device_uuid="GPU-0",domain="memory"} 2000000002
  {device_uuid="GPU-0",domain="video"} 2000000003
allostat_device_throttle_active kind 1 unit "": 1: the device runs slower than it could, for this reason.
  {device_uuid="GPU-0",reason="idle"} 1
  {device_uuid="GPU-0",reason="application_clocks"} 0
  {device_uuid="GPU-0",reason="software_power"} 1
  {device_uuid="GPU-0",reason="hardware_slowdown"} 0
  {device_uuid="GPU-0",reason="sync_boost"} 0
  {device_uuid="GPU-0",reason="software_thermal"} 0
  {device_uuid="GPU-0",reason="hardware_thermal"} 0
  {device_uuid="GPU-0",reason="hardware_power_brake"} 0
  {device_uuid="GPU-0",reason="display_clocks"} 0
allostat_device_throttle_seconds_total kind 0 unit "seconds": Time in which the device ran slower than it could, by reason.
  {device_uuid="GPU-0",reason="idle"} 7 created -
  {device_uuid="GPU-0",reason="application_clocks"} 7.000000001 created -
  {device_uuid="GPU-0",reason="software_power"} 7.000000002 created -
  {device_uuid="GPU-0",reason="hardware_slowdown"} 7.000000003 created -
  {device_uuid="GPU-0",reason="sync_boost"} 7.000000004 created -
  {device_uuid="GPU-0",reason="software_thermal"} 7.000000005 created -
  {device_uuid="GPU-0",reason="hardware_thermal"} 7.000000006 created -
  {device_uuid="GPU-0",reason="hardware_power_brake"} 7.000000007 created -
  {device_uuid="GPU-0",reason="display_clocks"} 7.000000008 created -
allostat_device_ecc_errors_total kind 0 unit "": Errors in the memory of the device: since its driver was loaded (volatile), and in its life (aggregate).
  {device_uuid="GPU-0",kind="corrected",counter="volatile"} 1 created -
  {device_uuid="GPU-0",kind="corrected",counter="aggregate"} 2 created -
  {device_uuid="GPU-0",kind="uncorrected",counter="volatile"} 0 created -
  {device_uuid="GPU-0",kind="uncorrected",counter="aggregate"} 3 created -
allostat_device_remapped_rows kind 1 unit "": Rows of memory that were replaced, by the kind of error.
  {device_uuid="GPU-0",cause="corrected"} 4
  {device_uuid="GPU-0",cause="uncorrected"} 5
allostat_device_row_remap_pending kind 1 unit "": 1: rows are replaced at the next reset of the device.
  {device_uuid="GPU-0"} 1
allostat_device_row_remap_failed kind 1 unit "": 1: a row could not be replaced; the device is to be exchanged.
  {device_uuid="GPU-0"} 0
allostat_device_retired_pages kind 1 unit "": Pages of memory that are not used any more, by the kind of error.
  {device_uuid="GPU-0",cause="corrected"} 6
  {device_uuid="GPU-0",cause="uncorrected"} 7
allostat_device_pcie_transmit_bytes_total kind 0 unit "bytes": Bytes that the device sent over PCIe.
  {device_uuid="GPU-0"} 1099511627776 created -
allostat_device_pcie_receive_bytes_total kind 0 unit "bytes": Bytes that the device received over PCIe.
  {device_uuid="GPU-0"} 2199023255552 created -
allostat_device_pcie_replays_total kind 0 unit "": Packets that had to be sent over PCIe again.
  {device_uuid="GPU-0"} 8 created -
allostat_device_pcie_link_generation kind 1 unit "": Generation of PCIe that is spoken now: it falls where the device idles.
  {device_uuid="GPU-0"} 5
allostat_device_pcie_link_width kind 1 unit "": Lanes of PCIe in use now.
  {device_uuid="GPU-0"} 16
allostat_device_nvlink_transmit_bytes_total kind 0 unit "bytes": Bytes of payload that the device sent over all its NVLink links.
  {device_uuid="GPU-0"} 4398046511104 created -
allostat_device_nvlink_receive_bytes_total kind 0 unit "bytes": Bytes of payload that the device received over all its NVLink links.
  {device_uuid="GPU-0"} 8796093022208 created -
allostat_device_nvlink_links kind 1 unit "": NVLink links of the device: those that are up, and those that are not.
  {device_uuid="GPU-0",state="active"} 17
  {device_uuid="GPU-0",state="inactive"} 1
allostat_device_nvlink_errors_total kind 0 unit "": Errors on NVLink links that are up: sent again (replay), set up again (recovery), wrong checksums.
  {device_uuid="GPU-0",kind="replay"} 9 created -
  {device_uuid="GPU-0",kind="recovery"} 10 created -
  {device_uuid="GPU-0",kind="crc_flit"} 11 created -
  {device_uuid="GPU-0",kind="crc_data"} 12 created -
allostat_device_sm_activity_ratio kind 1 unit "ratio": Share of the time in which a multiprocessor of the device had work, over all of them.
  {device_uuid="GPU-0"} 0.625
allostat_device_tensor_activity_ratio kind 1 unit "ratio": Share of the time in which the tensor cores of the device were at work.
  {device_uuid="GPU-0"} 0.25
allostat_device_dram_activity_ratio kind 1 unit "ratio": Share of what can go to and from the memory of the device that went.
  {device_uuid="GPU-0"} 0.375
allostat_device_recovery_action kind 1 unit "": What the driver wants to be done: 0 nothing, 1 a reset, 2 a restart of the host, 3 draining, 4 draining and a reset.
  {device_uuid="GPU-0"} 0
allostat_device_processes kind 1 unit "": Processes that hold the device, whoever they belong to.
  {device_uuid="GPU-0"} 3
allostat_mig_memory_used_bytes kind 1 unit "bytes": Memory of the instance in use.
  {device_uuid="GPU-2",mig_uuid="MIG-2-7"} 2147483648
allostat_device_info kind 1 unit "": What the device is. Join with: * on (job, instance, device_uuid) group_left (model, index) allostat_device_info.
  {device_uuid="GPU-0",plugin="nvidia",vendor="nvidia",device_type="gpu",model="NVIDIA H100",index="0"} 1
  {device_uuid="GPU-1",plugin="nvidia",vendor="nvidia",device_type="gpu",model="NVIDIA H100",index="0"} 1
  {device_uuid="GPU-2",plugin="nvidia",vendor="nvidia",device_type="gpu",model="NVIDIA H100",index="0"} 1
  {device_uuid="fpga0",plugin="acme",vendor="acme",device_type="fpga",model="U250"} 1
allostat_mig_info kind 1 unit "": An instance of a divided device, and of which.
  {device_uuid="GPU-2",mig_uuid="MIG-2-7",profile="MIG 1g.10gb",gpu_instance_id="7",compute_instance_id="0"} 1
allostat_device_up kind 1 unit "": 1: the device answers. 0: it has fallen off its bus, wants a reset, or its plugin does not list it any more.
  {device_uuid="GPU-0"} 1
  {device_uuid="GPU-1"} 0
  {device_uuid="GPU-2"} 0
  {device_uuid="fpga0"} 1
allostat_device_stuck kind 1 unit "": 1: a call to the device has not come back in its time. Its values are not told until it has.
  {device_uuid="GPU-0"} 0
  {device_uuid="GPU-1"} 1
  {device_uuid="GPU-2"} 0
  {device_uuid="fpga0"} 0
allostat_device_read_timestamp_seconds kind 1 unit "seconds": When the device was read last.
  {device_uuid="GPU-0"} 1767323045
  {device_uuid="fpga0"} 1767323045
allostat_device_unowned_memory_bytes kind 1 unit "bytes": Memory of the device in use that belongs to no task: of processes of others, of dead ones, of its driver.
  {device_uuid="GPU-0"} 5242880
allostat_device_xid_errors_total kind 0 unit "": Errors that the driver told of, by their number, since the agent watches. What is dangerous is there from the start, at 0.
  {device_uuid="GPU-0",xid="48"} 0 created -
  {device_uuid="GPU-0",xid="79"} 2 created -
allostat_device_xid_last_timestamp_seconds kind 1 unit "seconds": When the driver told of such an error last.
  {device_uuid="GPU-0",xid="79"} 1767323045
allostat_device_stat kind 1 unit "": A number that a plugin tells beyond what is known by name, in the unit that it says. Of one with a denominator, the numerator.
  {device_uuid="fpga0",stat="lanes \"in\" use"} 7
  {device_uuid="fpga0",stat="memory/used",stat_unit="MiB"} 3
allostat_device_plugin_up kind 1 unit "": 1: the plugin runs. 0: it does not, or GPUs are on the PCI bus and their driver or its library is missing.
  {plugin="fpga"} 0
  {plugin="nvidia"} 1
allostat_device_plugin_faults_total kind 0 unit "": How often a device plugin ended, or said what cannot be, by reason.
  {plugin="fpga",reason="died"} 3 created -
allostat_collector_oldest_sample_timestamp_seconds kind 1 unit "seconds": When the oldest value was read that the collector shows, as of the last tick: time() minus this is the age of what is shown. `task`: of what runs, tasks and their allocs; in one that sleeps all is looked at every 9 s. What has ended is read no more, and not counted here.
  {collector="task"} 1767323045
allostat_allocs_collected_total kind 0 unit "": Ended allocs removed with their directories. count: there were too many; age: it ended long ago; requested: somebody asked; disk: for want of room; disk_unread: for want of room, before every scraper had its final series.
  {reason="age"} 0 created -
  {reason="count"} 0 created -
  {reason="disk"} 0 created -
  {reason="disk_unread"} 0 created -
  {reason="requested"} 0 created -
allostat_clock_steps_total kind 0 unit "": Jumps of the wall clock by more than half a second, in either direction.
  {} 0 created -
allostat_collector_skipped_ticks_total kind 0 unit "": Sampling ticks left out because the one before took too long or the machine slept.
  {} 0 created -
allostat_events_missed_total kind 0 unit "": Events that readers of /v1/events were told they had missed: no longer kept when they came to read on.
  {} 0 created -
allostat_http_requests_refused_total kind 0 unit "": Requests and connections over TCP that were not let in. wrong_host: the Host header names another; socket_only: for who acts, or more than telemetry.public tells; no_credentials, wrong_password (or user), wrong_token: with 401; token_in_clear: a token over plain HTTP from elsewhere; page: a browser's page wanted to act; rate_limit, too_many_connections, unsent_answers: too much at once; plain_http: on a port that speaks TLS; no_certificate, certificate_expired, certificate_untrusted, certificate_name, certificate_invalid, tls: the handshake failed.
  {reason="certificate_expired"} 0 created -
  {reason="certificate_invalid"} 0 created -
  {reason="certificate_name"} 0 created -
  {reason="certificate_untrusted"} 0 created -
  {reason="no_certificate"} 0 created -
  {reason="no_credentials"} 0 created -
  {reason="page"} 0 created -
  {reason="plain_http"} 0 created -
  {reason="rate_limit"} 0 created -
  {reason="socket_only"} 0 created -
  {reason="tls"} 0 created -
  {reason="token_in_clear"} 0 created -
  {reason="too_many_connections"} 0 created -
  {reason="unsent_answers"} 0 created -
  {reason="wrong_host"} 0 created -
  {reason="wrong_password"} 0 created -
  {reason="wrong_token"} 0 created -
allostat_log_lines_suppressed_total kind 0 unit "": Warnings and errors not logged because the same line had just been logged many times.
  {} 0 created -
allostat_series_dropped_total kind 0 unit "": Series that somebody may miss. scope "final": withdrawn before every known scraper had them, "budget", because they took more memory than allowed, or "unread", because a scraper did not come for as long as they are kept at most. scope "alloc", reason "churn": of new allocs above their workload's telemetry.churn_limit, which are added up in alloc_id="_overflow".
  {reason="budget",scope="final"} 0 created -
  {reason="churn",scope="alloc"} 0 created -
  {reason="unread",scope="final"} 0 created -
allostat_state_db_write_duration_seconds kind 4 unit "seconds": How long a durable commit took, the disk's answer included.
  {} count 0 sum 0 created 1767322045.000000000
    <= 0.001: 0
    <= 0.0025: 0
    <= 0.005: 0
    <= 0.01: 0
    <= 0.025: 0
    <= 0.05: 0
    <= 0.1: 0
    <= 0.25: 0
    <= 1: 0
    <= 5: 0
    <= 30: 0
    <= inf: 0
    schema 3 zero 0 <= 2.938735877055719e-39 spans [0+0] deltas []
allostat_state_db_write_failures_total kind 0 unit "": Commits that the state database refused: a full disk, an I/O error.
  {} 0 created -
allostat_state_db_writes_deduped_total kind 0 unit "": Records not written because the database has the same bytes already.
  {} 0 created -
allostat_state_db_writes_total kind 0 unit "": Durable commits to the state database. Many records may share one.
  {} 0 created -
allostat_task_start_phase_duration_seconds kind 4 unit "seconds": The parts of all starts here. prestart: the task's hooks, which make its directories and environment; setup: the durable record of what is about to run; driver: until the main process runs. Begins with the agent's process.
  {phase="driver"} count 1 sum 0.036 created 1767322045.000000000
    <= 0.005: 0
    <= 0.01: 0
    <= 0.05: 1
    <= 0.1: 1
    <= 0.5: 1
    <= 1: 1
    <= 5: 1
    <= 30: 1
    <= 300: 1
    <= inf: 1
    schema 3 zero 0 <= 2.938735877055719e-39 spans [-38+1] deltas [1]
  {phase="prestart"} count 1 sum 0.004 created 1767322045.000000000
    <= 0.005: 1
    <= 0.01: 1
    <= 0.05: 1
    <= 0.1: 1
    <= 0.5: 1
    <= 1: 1
    <= 5: 1
    <= 30: 1
    <= 300: 1
    <= inf: 1
    schema 3 zero 0 <= 2.938735877055719e-39 spans [-63+1] deltas [1]
  {phase="setup"} count 1 sum 0.007 created 1767322045.000000000
    <= 0.005: 0
    <= 0.01: 1
    <= 0.05: 1
    <= 0.1: 1
    <= 0.5: 1
    <= 1: 1
    <= 5: 1
    <= 30: 1
    <= 300: 1
    <= inf: 1
    schema 3 zero 0 <= 2.938735877055719e-39 spans [-57+1] deltas [1]
allostat_series kind 1 unit "": Series of each family in this very body, less those of this family.
  {family="allostat_exposition_info"} 1
  {family="allostat_build_info"} 1
  {family="allostat_alloc_info"} 2
  {family="allostat_task_info"} 3
  {family="allostat_task_memory_usage_bytes"} 1
  {family="allostat_task_memory_peak_bytes"} 2
  {family="allostat_task_memory_window_peak_bytes"} 1
  {family="allostat_task_memory_sampled_peak_bytes"} 2
  {family="allostat_task_memory_working_set_bytes"} 1
  {family="allostat_task_memory_rss_bytes"} 1
  {family="allostat_task_memory_limit_bytes"} 2
  {family="allostat_task_oom_kills_total"} 2
  {family="allostat_task_cpu_usage_seconds_total"} 2
  {family="allostat_task_cpu_cfs_periods_total"} 2
  {family="allostat_task_cpu_cfs_throttled_periods_total"} 2
  {family="allostat_task_cpu_limit_cores"} 2
  {family="allostat_task_io_read_bytes_total"} 2
  {family="allostat_task_io_written_bytes_total"} 2
  {family="allostat_task_pids_current"} 1
  {family="allostat_task_pids_limit"} 2
  {family="allostat_task_network_receive_bytes_total"} 2
  {family="allostat_task_network_transmit_bytes_total"} 2
  {family="allostat_task_pressure_stall_seconds_total"} 14
  {family="allostat_alloc_memory_usage_bytes"} 1
  {family="allostat_alloc_memory_peak_bytes"} 1
  {family="allostat_alloc_memory_working_set_bytes"} 1
  {family="allostat_workload_oom_kills_total"} 2
  {family="allostat_workload_cpu_usage_seconds_total"} 2
  {family="allostat_task_device_memory_used_bytes"} 2
  {family="allostat_task_device_memory_peak_bytes"} 3
  {family="allostat_task_device_sm_utilization_ratio"} 2
  {family="allostat_task_device_processes"} 2
  {family="allostat_task_device_energy_joules_total"} 3
  {family="allostat_task_device_xid_errors_total"} 3
  {family="allostat_alloc_device_memory_used_bytes"} 1
  {family="allostat_alloc_device_sm_utilization_ratio"} 1
  {family="allostat_alloc_device_processes"} 1
  {family="allostat_alloc_device_energy_joules_total"} 2
  {family="allostat_alloc_device_xid_errors_total"} 2
  {family="allostat_alloc_device_info"} 2
  {family="allostat_task_state"} 18
  {family="allostat_task_state_since_timestamp_seconds"} 3
  {family="allostat_task_time_in_state_seconds_total"} 4
  {family="allostat_task_restarts_total"} 12
  {family="allostat_allocs"} 4
  {family="allostat_tasks"} 6
  {family="allostat_host_allocated_memory_bytes"} 1
  {family="allostat_host_allocated_cpu_cores"} 1
  {family="allostat_workload_restarts_total"} 12
  {family="allostat_task_exits_total"} 18
  {family="allostat_task_exit_codes_total"} 2
  {family="allostat_task_events_total"} 1
  {family="allostat_task_kill_escalations_total"} 3
  {family="allostat_task_given_up_total"} 3
  {family="allostat_task_log_lost_bytes_total"} 1
  {family="allostat_workload_failed_allocs"} 4
  {family="allostat_alloc_run_seconds_total"} 12
  {family="allostat_task_start_duration_seconds"} 12
  {family="allostat_task_kill_duration_seconds"} 12
  {family="allostat_node_task_exits_total"} 6
  {family="allostat_node_task_oom_kills_total"} 1
  {family="allostat_node_task_restarts_total"} 4
  {family="allostat_node_cpu_usage_seconds_total"} 1
  {family="allostat_node_allocs_total"} 1
  {family="allostat_device_utilization_ratio"} 4
  {family="allostat_device_memory_used_bytes"} 1
  {family="allostat_device_memory_free_bytes"} 1
  {family="allostat_device_memory_reserved_bytes"} 1
  {family="allostat_device_memory_total_bytes"} 1
  {family="allostat_device_bar1_used_bytes"} 1
  {family="allostat_device_temperature_celsius"} 2
  {family="allostat_device_temperature_threshold_celsius"} 4
  {family="allostat_device_power_watts"} 1
  {family="allostat_device_power_average_watts"} 1
  {family="allostat_device_power_limit_watts"} 1
  {family="allostat_device_energy_joules_total"} 1
  {family="allostat_device_clock_hertz"} 4
  {family="allostat_device_clock_max_hertz"} 4
  {family="allostat_device_throttle_active"} 9
  {family="allostat_device_throttle_seconds_total"} 9
  {family="allostat_device_ecc_errors_total"} 4
  {family="allostat_device_remapped_rows"} 2
  {family="allostat_device_row_remap_pending"} 1
  {family="allostat_device_row_remap_failed"} 1
  {family="allostat_device_retired_pages"} 2
  {family="allostat_device_pcie_transmit_bytes_total"} 1
  {family="allostat_device_pcie_receive_bytes_total"} 1
  {family="allostat_device_pcie_replays_total"} 1
  {family="allostat_device_pcie_link_generation"} 1
  {family="allostat_device_pcie_link_width"} 1
  {family="allostat_device_nvlink_transmit_bytes_total"} 1
  {family="allostat_device_nvlink_receive_bytes_total"} 1
  {family="allostat_device_nvlink_links"} 2
  {family="allostat_device_nvlink_errors_total"} 4
  {family="allostat_device_sm_activity_ratio"} 1
  {family="allostat_device_tensor_activity_ratio"} 1
  {family="allostat_device_dram_activity_ratio"} 1
  {family="allostat_device_recovery_action"} 1
  {family="allostat_device_processes"} 1
  {family="allostat_mig_memory_used_bytes"} 1
  {family="allostat_device_info"} 4
  {family="allostat_mig_info"} 1
  {family="allostat_device_up"} 4
  {family="allostat_device_stuck"} 4
  {family="allostat_device_read_timestamp_seconds"} 2
  {family="allostat_device_unowned_memory_bytes"} 1
  {family="allostat_device_xid_errors_total"} 2
  {family="allostat_device_xid_last_timestamp_seconds"} 1
  {family="allostat_device_stat"} 2
  {family="allostat_device_plugin_up"} 2
  {family="allostat_device_plugin_faults_total"} 1
  {family="allostat_collector_oldest_sample_timestamp_seconds"} 1
  {family="allostat_allocs_collected_total"} 5
  {family="allostat_clock_steps_total"} 1
  {family="allostat_collector_skipped_ticks_total"} 1
  {family="allostat_events_missed_total"} 1
  {family="allostat_http_requests_refused_total"} 17
  {family="allostat_log_lines_suppressed_total"} 1
  {family="allostat_series_dropped_total"} 3
  {family="allostat_state_db_write_duration_seconds"} 14
  {family="allostat_state_db_write_failures_total"} 1
  {family="allostat_state_db_writes_deduped_total"} 1
  {family="allostat_state_db_writes_total"} 1
  {family="allostat_task_start_phase_duration_seconds"} 36
